#include "run.h"

#include <chrono>
#include <utility>

namespace coppice_python {
namespace {

/// How long Ctrl-C may wait to be heard.
constexpr std::chrono::milliseconds between_signals{50};

}  // namespace

Run::Run(EngineHandle engine, Requests requests, bool answered)
    : engine_(std::move(engine)), requests_(std::move(requests)), answered_(answered) {
  coppice_stop* stop = nullptr;
  check(coppice_stop_new(&stop));
  stop_.reset(stop);
  listeners_.reserve(requests_.size());
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    listeners_.push_back({this, i});
    requests_[i]->listen(on_piece, &listeners_[i]);
  }
  thread_ = std::thread([this] { write(); });
}

void Run::write() {
  std::vector<const coppice_request*> views;
  for (const auto& request : requests_) views.push_back(request->get());
  std::vector<coppice_outcome*> outcomes(views.size());
  const coppice_status status = coppice_generate_many(
      engine_.get(), views.data(), views.size(), on_outcome, this, stop_.get(), outcomes.data());
  for (coppice_outcome* const outcome : outcomes) coppice_outcome_free(outcome);
  const std::lock_guard lock(mutex_);
  status_ = status;
  if (status != COPPICE_OK) message_ = coppice_error_message();
  ended_ = true;
  changed_.notify_all();
}

int Run::on_piece(void* listener, const coppice_piece* piece) {
  const auto& [run, request] = *static_cast<const Listener*>(listener);
  Event event;
  event.request = request;
  event.sample = piece->sample;
  event.text.assign(piece->text, piece->text_bytes);
  event.tokens.assign(piece->tokens, piece->tokens + piece->token_count);
  event.logprobs = copy_of(piece->logprobs, piece->token_count);
  return run->put(std::move(event), run->answered_) ? 0 : 1;
}

void Run::on_outcome(void* run, size_t index, const coppice_outcome* outcome) {
  Event event;
  event.request = index;
  event.outcome = outcome;
  static_cast<Run*>(run)->put(std::move(event), true);  // the outcome is there that long
}

// Returns the answer, if there is to be one.
bool Run::put(Event event, bool answered) {
  std::unique_lock lock(mutex_);
  if (closed_) return false;
  events_.push_back(std::move(event));
  awaited_ = answered;
  changed_.notify_all();
  if (!answered) return true;
  changed_.wait(lock, [&] { return !awaited_ || (closed_ && !read_); });
  return go_on_ && !closed_;
}

nb::object Run::next() {
  for (;;) {
    Event event;
    bool ready = false, ended = false;
    {
      const nb::gil_scoped_release unlocked;
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, between_signals,
                        [&] { return !events_.empty() || ended_ || closed_; });
      ready = !events_.empty();
      ended = !ready && (ended_ || closed_);
      if (ready) {
        event = std::move(events_.front());
        events_.pop_front();
        read_ = event.outcome != nullptr;
      }
    }
    if (ready && event.outcome != nullptr) {
      const Reading reading(*this);
      return nb::make_tuple(event.request, dict_of(*event.outcome));
    }
    if (ready) {
      return nb::make_tuple(
          event.request, event.sample, nb::str(event.text.data(), event.text.size()),
          list_of(event.tokens.data(), event.tokens.size()), list_of(event.logprobs));
    }
    if (ended) {
      if (status_ != COPPICE_OK) raise(status_, message_.c_str());
      return nb::none();
    }
    if (PyErr_CheckSignals() != 0) throw nb::python_error();
  }
}

void Run::answer(bool go_on) {
  if (answered_) reply(go_on);
}

void Run::reply(bool go_on) {
  const std::lock_guard lock(mutex_);
  awaited_ = read_ = false;
  go_on_ = go_on;
  changed_.notify_all();
}

void Run::stop() { coppice_stop_request(stop_.get()); }

void Run::close() {
  const nb::gil_scoped_release unlocked;
  stop();
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    events_.clear();
    changed_.notify_all();
  }
  const std::lock_guard lock(closing_);
  if (thread_.joinable()) thread_.join();
}

}  // namespace coppice_python
