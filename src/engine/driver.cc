#include "engine/driver.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/start_thread.h"
#include "engine/engine_impl.h"
#include "engine/sequence_impl.h"

namespace coppice {

void DriverBell::ring() {
  const std::lock_guard lock(mutex_);
  rung_ = true;
  rung_condition_.notify_one();
  if (call_ != nullptr) call_->interrupt();
}

// --- a submission -----------------------------------------------------------------------------

Submission::Submission(std::shared_ptr<Impl> impl) : impl_(std::move(impl)) {}

Submission& Submission::operator=(Submission&& other) noexcept {
  if (this == &other) return *this;
  const Submission former(std::move(impl_));
  impl_ = std::move(other.impl_);
  return *this;
}

Submission::~Submission() {
  if (impl_ == nullptr) return;
  cancel();
  if (impl_->bell->on_its_thread()) return;
  std::unique_lock lock(impl_->mutex);
  impl_->done_condition.wait(lock, [&] { return impl_->done; });
}

void Submission::cancel() {
  if (impl_ == nullptr || done()) return;
  impl_->stop.request_stop();
  impl_->bell->ring();
}

bool Submission::done() const {
  if (impl_ == nullptr) return true;
  const std::lock_guard lock(impl_->mutex);
  return impl_->done;
}

Outcome Submission::wait() {
  if (impl_ == nullptr) throw_usage("submission: nothing was submitted");
  std::unique_lock lock(impl_->mutex);
  if (!impl_->done && impl_->bell->on_its_thread()) {
    throw_usage("submission: its wait() was called in a callback, which the text waits for");
  }
  impl_->done_condition.wait(lock, [&] { return impl_->done; });
  if (std::exchange(impl_->taken, true)) {
    throw_usage("submission: its outcome was taken by an earlier wait()");
  }
  return std::move(impl_->outcome);
}

Submission Engine::submit(Request request, std::function<void(Outcome& outcome)> finished) {
  return in_words("submit", [&] {
    check_samples(request);
    check_request(*impl_, request);
    Driver& driver = impl_->driver();
    auto submission = std::make_shared<Submission::Impl>();
    submission->outcome = outcome_before(request);
    if (request.sequence != nullptr) submission->sequence = SequenceAccess::impl(*request.sequence);
    submission->request = std::move(request);
    submission->finished = std::move(finished);
    submission->bell = driver.bell();
    driver.submit(submission);
    return Submission(std::move(submission));
  });
}

EngineStatistics Engine::statistics() const {
  EngineStatistics s = in_words("statistics", [&] { return impl_->step_counts.read(); });
  const Scheduler::Counts counts = impl_->scheduler->counts();
  s.running = counts.running;
  s.waiting = counts.queued + impl_->unopened();
  s.preempted = counts.preempted;
  s.new_tokens = impl_->new_tokens;
  s.cache = cache();
  return s;
}

// --- the driver -------------------------------------------------------------------------------

Driver::Driver(Engine::Impl& engine)
    : engine_(engine),
      bell_(std::make_shared<DriverBell>()),
      most_(most_open(engine)),
      thread_(start_thread([this] { run(); })) {}

Driver::~Driver() {
  {
    const std::lock_guard lock(mutex_);
    quits_ = true;
  }
  bell_->ring();
  thread_.join();
}

void Driver::submit(std::shared_ptr<Submission::Impl> submission) {
  {
    const std::lock_guard lock(mutex_);
    new_.push_back(std::move(submission));
    unopened_ += new_.back()->request.n;
  }
  bell_->ring();
}

void Driver::run() {
  bell_->thread_ = std::this_thread::get_id();
  call_.emplace(*engine_.scheduler);  // belongs to this thread
  {
    const std::lock_guard lock(bell_->mutex_);
    bell_->call_ = &*call_;
  }
  bool goes_on = true;
  while (goes_on) {
    try {
      goes_on = write();
    } catch (...) {
      fail_all();
    }
  }
  const std::lock_guard lock(bell_->mutex_);
  bell_->call_ = nullptr;
  call_.reset();
}

// Looks at the submissions, and writes until one of them wants that again. False: the driver quits,
// and everything has ended.
bool Driver::write() {
  take_new();
  cancel_asked();
  open_more();
  while (RunningSequence* const run = call_->next()) {
    if (call_->deliver(*run)) continue;
    finish(std::ranges::find_if(in_flight_,
                                [&](const InFlight& each) { return &each.open->run() == run; }));
    open_more();
  }
  {
    const std::lock_guard lock(mutex_);
    if (quits_ && new_.empty() && waiting_.empty() && in_flight_.empty()) return false;
  }
  std::unique_lock lock(bell_->mutex_);
  if (in_flight_.empty()) bell_->rung_condition_.wait(lock, [&] { return bell_->rung_; });
  bell_->rung_ = false;
  return true;
}

void Driver::take_new() {
  const std::lock_guard lock(mutex_);
  waiting_.splice(waiting_.end(), new_);
  if (!quits_) return;
  for (const Shared& submission : waiting_) submission->stop.request_stop();
  for (const InFlight& one : in_flight_) one.submission->stop.request_stop();
}

void Driver::cancel_asked() {
  for (Place one = in_flight_.begin(); one != in_flight_.end();) {
    const Place next = std::next(one);
    if (one->submission->stop.stop_requested()) {
      call_->remove(one->open->run());
      one->open->cancel();
      finish(one);
    }
    one = next;
  }
  for (auto at = waiting_.begin(); at != waiting_.end();) {
    const auto next = std::next(at);
    if ((*at)->stop.stop_requested()) {
      const Shared cancelled = *at;
      waiting_.erase(at);
      cancel(*cancelled);
    }
    at = next;
  }
}

// Ends the samples that have not begun.
void Driver::cancel(Submission::Impl& submission) {
  while (submission.opened < submission.request.n) {
    const auto sample = static_cast<std::size_t>(submission.opened++);
    --unopened_;
    submission.outcome.samples[sample].finish_reason = FinishReason::cancelled;
    sample_ended(submission);
  }
}

void Driver::open_more() {
  while (in_flight_.size() < most_ && !waiting_.empty()) {
    const Shared submission = waiting_.front();
    if (submission->stop.stop_requested()) return;  // it has rung
    const std::int32_t sample = submission->opened++;
    --unopened_;
    if (submission->opened == submission->request.n) waiting_.pop_front();
    bool opened = false, ended = false;
    try {
      ended = open(submission, sample);
      opened = true;
    } catch (...) {
      note_error(submission->outcome);
    }
    if (ended) finish(std::prev(in_flight_.end()));
    if (!opened) sample_ended(*submission);
  }
}

// True: it has ended at once.
bool Driver::open(const Shared& submission, std::int32_t sample) {
  auto sequence = submission->sequence != nullptr ? submission->sequence
                                                  : std::make_shared<Sequence::Impl>(engine_);
  std::list<InFlight> one;
  one.push_back({submission, sample,
                 open_sample(std::move(sequence), submission->request, sample,
                             submission->stop.get_token())});
  const bool runs = begin_run(*call_, *one.front().open);
  in_flight_.splice(in_flight_.end(), one);  // does not fail: the call knows the run
  return !runs;
}

void Driver::finish(Place one) {
  const Shared submission = one->submission;
  try {
    submission->outcome.samples[static_cast<std::size_t>(one->sample)] = one->open->finish();
  } catch (...) {
    note_error(submission->outcome);
  }
  in_flight_.erase(one);
  sample_ended(*submission);
}

void Driver::sample_ended(Submission::Impl& submission) {
  if (++submission.ended < submission.request.n) return;
  submission.sequence = nullptr;
  if (submission.finished) {
    try {
      submission.finished(submission.outcome);
    } catch (...) {
      note_error(submission.outcome);
    }
    submission.finished = nullptr;
  }
  submission.request.callback = nullptr;
  const std::lock_guard lock(submission.mutex);
  submission.done = true;
  submission.done_condition.notify_all();
}

// What a step lacked was not one sequence's alone. The exception is being handled.
void Driver::fail_all() {
  const std::exception_ptr error = in_words(std::current_exception(), "submit");
  while (!in_flight_.empty()) {
    RunningSequence& run = in_flight_.front().open->run();
    call_->remove(run);
    run.failure = error;
    finish(in_flight_.begin());
  }
}

}  // namespace coppice
