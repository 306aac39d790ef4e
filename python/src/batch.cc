#include "batch.h"

#include <algorithm>
#include <utility>

namespace coppice_python {

Batch::Batch(Requests requests) : requests_(std::move(requests)), events_(requests_.size()) {
  for (std::size_t i = 0; i < requests_.size(); ++i) listeners_.push_back({this, i});
}

bool Batch::uses_sequences() const {
  return std::ranges::any_of(requests_, [](const auto& one) { return one->has_sequence(); });
}

nb::dict Batch::dict_of_outcome(std::size_t request, const coppice_outcome& outcome) const {
  nb::dict dict = dict_of(outcome);
  const coppice_status status = coppice_outcome_status(&outcome);
  dict["error"] = status == COPPICE_OK ? nb::none()
                                       : error_of(status, coppice_outcome_message(&outcome),
                                                  requests_[request]->policy_failure());
  return dict;
}

// --- written by the engine's own thread --------------------------------------------------------

SubmittedBatch::~SubmittedBatch() {
  const nb::gil_scoped_release unlocked;  // a policy's last call may need it
  submissions_.clear();
}

void SubmittedBatch::start(coppice_engine* engine) {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i]->listened()) requests_[i]->listen(on_piece, &listeners_[i]);
    coppice_submission* submission = nullptr;
    const coppice_status status = call_unlocked(coppice_submit, engine, requests_[i]->get(), on_end,
                                                static_cast<void*>(&listeners_[i]), &submission);
    if (status != COPPICE_OK) {
      const std::string message = coppice_error_message();
      events_.end();
      const std::string where =
          requests_.size() > 1 ? "request " + std::to_string(i) + ": " : std::string();
      raise(status, (where + message).c_str());
    }
    submissions_.emplace_back(submission);
  }
}

void SubmittedBatch::stop() {
  for (const auto& submission : submissions_) coppice_submission_cancel(submission.get());
}

bool SubmittedBatch::ended() const {
  return std::ranges::all_of(
      submissions_, [](const auto& one) { return coppice_submission_done(one.get()) != 0; });
}

nb::dict SubmittedBatch::outcome_of(std::size_t request) {
  coppice_outcome* outcome = nullptr;
  call(coppice_submission_wait, submissions_[request].get(), &outcome);
  return dict_of_outcome(request, *OutcomeHandle(outcome));
}

int SubmittedBatch::on_piece(void* listener, const coppice_piece* piece) {
  const auto& [batch, request] = *static_cast<const Listener*>(listener);
  if (batch->events().skips_pieces()) return 0;
  batch->events().put(event_of(request, *piece));
  return 0;
}

void SubmittedBatch::on_end(void* listener, const coppice_outcome* /*outcome*/) {
  const auto& [batch, request] = *static_cast<const Listener*>(listener);
  batch->events().put({.request = request, .is_end = true});
}

// --- written by a thread that waits for answers ------------------------------------------------

AnsweredBatch::AnsweredBatch(Requests requests)
    : Batch(std::move(requests)), outcomes_(requests_.size()) {
  coppice_stop* stop = nullptr;
  call(coppice_stop_new, &stop);
  stop_.reset(stop);
}

AnsweredBatch::~AnsweredBatch() {
  const nb::gil_scoped_release unlocked;
  if (thread_.joinable()) thread_.join();
}

void AnsweredBatch::start(coppice_engine* engine) {
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    if (requests_[i]->listened()) requests_[i]->listen(on_piece, &listeners_[i]);
  }
  thread_ = std::thread([this, engine] { write(engine); });
}

void AnsweredBatch::write(coppice_engine* engine) {
  std::vector<const coppice_request*> views;
  for (const auto& request : requests_) views.push_back(request->get());
  std::vector<coppice_outcome*> outcomes(views.size());
  status_ = coppice_generate_many(engine, views.data(), views.size(), on_outcome, this, stop_.get(),
                                  outcomes.data());
  if (status_ != COPPICE_OK) message_ = coppice_error_message();
  for (coppice_outcome* const outcome : outcomes) coppice_outcome_free(outcome);
  ended_ = true;
  events_.end();
}

void AnsweredBatch::stop() {
  coppice_stop_request(stop_.get());
  const std::lock_guard lock(mutex_);
  stopped_ = true;
  answered_.notify_all();
}

bool AnsweredBatch::ended() const { return ended_; }

nb::dict AnsweredBatch::outcome_of(std::size_t request) { return outcomes_[request]; }

void AnsweredBatch::answer(bool go_on) {
  const std::lock_guard lock(mutex_);
  awaited_ = false;
  go_on_ = go_on;
  answered_.notify_all();
}

void AnsweredBatch::check() const {
  if (status_ != COPPICE_OK) raise(status_, message_.c_str());
}

int AnsweredBatch::on_piece(void* listener, const coppice_piece* piece) {
  const auto& [batch, request] = *static_cast<const Listener*>(listener);
  return static_cast<AnsweredBatch*>(batch)->ask(request, *piece) ? 0 : 1;
}

void AnsweredBatch::on_outcome(void* self, size_t index, const coppice_outcome* outcome) {
  auto* const batch = static_cast<AnsweredBatch*>(self);
  {
    const nb::gil_scoped_acquire locked;
    batch->outcomes_[index] = batch->dict_of_outcome(index, *outcome);
  }
  batch->events_.put({.request = index, .is_end = true});
}

bool AnsweredBatch::ask(std::size_t request, const coppice_piece& piece) {
  std::unique_lock lock(mutex_);
  if (stopped_) return false;
  awaited_ = true;
  events_.put(event_of(request, piece));
  answered_.wait(lock, [&] { return !awaited_ || stopped_; });
  return go_on_ && !stopped_;
}

}  // namespace coppice_python
