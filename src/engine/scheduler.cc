#include "engine/scheduler.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

#include "base/lost_model.h"
#include "base/stopwatch.h"
#include "engine/access.h"
#include "engine/step.h"
#include "engine/watched_passes.h"

namespace coppice {
namespace {

/// Free slots required, beyond missing prompt tokens, before another sequence is admitted: a few
/// steps' slots, two steps' at least. With fewer slots than sequences the new one would be
/// preempted before its first step, and admitted again, for ever.
std::int32_t headroom(std::int32_t sequences) { return std::max(64, 2 * sequences); }
/// How long a step waits for callbacks, in seconds: as long as steps take, within these bounds. A
/// thread that sleeps takes some time to wake.
constexpr double least_patience = 100e-6, most_patience = 20e-3;

/// Sequences of the queue that are compared by what they share, and how often one of them may be
/// passed over.
constexpr std::ptrdiff_t most_compared = 64;
constexpr std::int32_t most_passed_over = 64;

bool has_kv(const RunningSequence* sequence) { return sequence->state.target_slots.size() > 0; }

bool has_event(const RunningSequence& sequence) {
  return sequence.failure != nullptr || sequence.ended() || sequence.has_piece();
}

}  // namespace

// --- a call -----------------------------------------------------------------------------------

// Waits until none of them is in a step.
template <typename Sequences>
void Call::await_step(std::unique_lock<std::mutex>& lock, const Sequences& sequences) {
  leaving_ = true;
  const auto in_step = [](const RunningSequence* sequence) {
    return sequence->place.state == SequencePlace::State::in_step;
  };
  while (std::ranges::any_of(sequences, in_step)) {
    asleep_ = true;
    wake_.wait(lock);
    asleep_ = false;
  }
  leaving_ = false;
}

Call::~Call() {
  std::unique_lock lock(scheduler_.mutex_);
  await_step(lock, sequences_);
  while (!sequences_.empty()) scheduler_.leave(*sequences_.back());
  std::erase(scheduler_.calls_, this);
  if (scheduler_.leader_ == nullptr) scheduler_.wake_next_leader();
}

void Call::add(RunningSequence& sequence) {
  const std::lock_guard lock(scheduler_.mutex_);
  Scheduler& s = scheduler_;
  // So that nothing later can fail.
  const std::size_t sequences = s.sequences_ + 1;
  s.queue_.reserve(sequences);
  s.running_.reserve(sequences);
  sequences_.reserve(sequences_.size() + 1);
  events_.reserve(sequences_.size() + 1);
  if (sequences_.empty() && std::find(s.calls_.begin(), s.calls_.end(), this) == s.calls_.end()) {
    s.calls_.push_back(this);
  }
  s.sequences_ = sequences;
  sequences_.push_back(&sequence);
  sequence.place.state = SequencePlace::State::queued;
  sequence.place.call = this;
  sequence.place.since = now_seconds();
  s.queue_.push_back(&sequence);
}

void Call::remove(RunningSequence& sequence) {
  std::unique_lock lock(scheduler_.mutex_);
  await_step(lock, std::array{&sequence});
  scheduler_.leave(sequence);
  if (scheduler_.leader_ == nullptr) scheduler_.wake_next_leader();
}

RunningSequence* Call::next() {
  std::unique_lock lock(scheduler_.mutex_);
  const auto is_to_return = [&] { return stopped_ || interrupted_; };
  while (events_.empty() && !is_to_return()) {
    if (sequences_.empty()) return nullptr;
    if (scheduler_.leader_ == nullptr && scheduler_.lead(lock, *this)) continue;
    if (is_to_return()) break;  // while it led
    asleep_ = true;
    wake_.wait(lock);
    asleep_ = false;
  }
  // Those who have nothing to deliver need not wait for this one.
  if (scheduler_.leader_ == nullptr) scheduler_.wake_next_leader();
  const bool interrupted = std::exchange(interrupted_, false);
  if (stopped_ || interrupted) return nullptr;
  RunningSequence* const sequence = events_.front();
  events_.erase(events_.begin());
  return sequence;
}

void Call::stop() {
  const std::lock_guard lock(scheduler_.mutex_);
  stopped_ = true;
  wake_.notify_one();
}

void Call::interrupt() {
  const std::lock_guard lock(scheduler_.mutex_);
  interrupted_ = true;
  wake_.notify_one();
}

bool Call::deliver(RunningSequence& sequence) {
  if (!sequence.failure) sequence.note_failure([&] { sequence.call_back(); });
  const std::lock_guard lock(scheduler_.mutex_);
  Scheduler& s = scheduler_;
  if (sequence.failure || sequence.ended()) {
    s.leave(sequence);
    if (s.leader_ == nullptr) s.wake_next_leader();
    return false;
  }
  s.stop_awaiting(sequence);
  const double now = now_seconds();
  sequence.place.slow = now - sequence.place.since > s.patience();
  if (sequence.place.preempted) {
    s.put_back(sequence);
  } else {
    sequence.place.state = SequencePlace::State::ready;
  }
  return true;
}

void write_to_end(Scheduler& scheduler, RunningSequence& sequence) {
  if (sequence.ended()) return;
  Call call(scheduler);
  call.add(sequence);
  while (call.next() != nullptr) call.deliver(sequence);
}

// --- steps ------------------------------------------------------------------------------------

// Leads one step for all ready sequences. Returns false if no sequence could take one.
bool Scheduler::lead(Lock& lock, Call& leader) {
  // So that nothing fails while it leads: nobody else would take over.
  for (auto* const list : {&ready_, &stepping_}) list->reserve(sequences_);
  lacking_.reserve(sequences_);
  plan_.reserve(sequences_);
  prompts_.reserve(sequences_);
  leader_ = &leader;
  await_calls(lock, leader);
  admit();
  ready_.clear();
  for (RunningSequence* const sequence : running_) {
    if (sequence->place.state != State::ready) continue;
    sequence->place.state = State::in_step;
    ready_.push_back(sequence);
  }
  if (ready_.empty()) {
    leader_ = nullptr;
    return false;
  }
  alone_ = running_.size() == 1 && std::none_of(queue_.begin(), queue_.end(), has_kv);
  lock.unlock();
  const double start = now_seconds();
  const bool had_slots = take_step();
  const double end = now_seconds();
  lock.lock();
  if (had_slots) step_seconds_ = end - start;
  for (RunningSequence* const sequence : ready_) {
    if (!has_event(*sequence)) {
      sequence->place.state = State::ready;
      continue;
    }
    sequence->place.state = State::at_call;
    sequence->place.since = end;
    if (!sequence->place.slow) ++awaited_;
    Call& call = *sequence->place.call;
    call.events_.push_back(sequence);
    if (&call != &leader) call.wake_.notify_one();
  }
  // Sequences left out of this step come first in the next.
  if (plan_.sequences.size() < ready_.size()) {
    for (const SequencePlan& plan : plan_.sequences) {
      // In the memory that it had. The plan is an older one if the step failed before it had its
      // own.
      if (std::erase(running_, plan.sequence) > 0) running_.push_back(plan.sequence);
    }
  }
  if (!had_slots) preempt();
  leader_ = nullptr;
  // A call may be waiting for its sequences to leave the step.
  for (Call* const call : calls_) {
    if (call->leaving_) call->wake_.notify_one();
  }
  return true;
}

// Waits for quick callbacks, so that sequences delivered at the same time go on together.
void Scheduler::await_calls(Lock& lock, const Call& leader) {
  const auto at_call = [](const RunningSequence* sequence) {
    return sequence->place.state == State::at_call && !sequence->place.slow;
  };
  if (awaited_ == 0) return;
  // This very thread is in the callback of one, which waits for this call's sequences.
  for (RunningSequence* const sequence : running_) {
    if (at_call(sequence) && sequence->place.call->thread_ == leader.thread_) give_up_on(*sequence);
  }
  leader_->wake_.wait_for(lock, std::chrono::duration<double>(patience()),
                          [&] { return awaited_ == 0; });
  for (RunningSequence* const sequence : running_) {
    if (at_call(sequence)) give_up_on(*sequence);
  }
}

double Scheduler::patience() const {
  return std::clamp(step_seconds_, least_patience, most_patience);
}

std::int32_t Scheduler::active() const {
  return static_cast<std::int32_t>(
      std::count_if(running_.begin(), running_.end(), [](const RunningSequence* sequence) {
        return sequence->place.state != State::at_call || !sequence->place.slow;
      }));
}

void Scheduler::admit() {
  std::int32_t running = active(), lacking = 0;
  lacking_.clear();
  // Counts tokens to compute; one sequence computes for all what several lack.
  const auto lacks = [&](const SequenceState& state) {
    return TargetRunner::prefill_rows(state) - lacking_.awaits(state);
  };
  for (RunningSequence* const sequence : running_) {
    if (sequence->place.state == State::ready && TargetRunner::prefill_rows(sequence->state) > 0) {
      sequence->find_shared();
    }
    lacking += lacks(sequence->state);
    lacking_.add(sequence->state);
  }
  while (!queue_.empty() && running < engine_.options.max_sequences) {
    const auto at = next_waiting();
    RunningSequence& sequence = **at;
    sequence.state.find_shared();
    const std::int32_t more = lacks(sequence.state),
                       wanted = lacking + more + headroom(running + 1);
    const std::int32_t room = engine_.target_runner->free_slots() + engine_.cache->evictable();
    if (running > 0 && wanted > room) return sequence.state.base.rewind(0);
    engine_.cache->evict({wanted, 0});
    for (auto passed = queue_.begin(); passed != at; ++passed) ++(*passed)->place.passed_over;
    queue_.erase(at);
    running_.push_back(&sequence);
    sequence.place.state = State::ready;
    if (std::exchange(sequence.place.preempted, false)) {
      ++sequence.account.preemptions;
      ++preempted_;
    }
    if (sequence.place.admitted == 0) sequence.note_cached();
    sequence.place.admitted = ++admitted_;
    sequence.account.queue_seconds += now_seconds() - sequence.place.since;
    lacking += more;
    lacking_.add(sequence.state);
    ++running;
  }
}

// Chooses the sequence to admit next: one that was preempted or passed over too often, else the one
// that shares most with the cache. The queue is not empty.
std::vector<RunningSequence*>::iterator Scheduler::next_waiting() {
  const auto first = queue_.begin();
  const SequencePlace& place = (*first)->place;
  if (place.preempted || place.passed_over >= most_passed_over || queue_.size() == 1) return first;
  const auto end = first + std::min(most_compared, std::ssize(queue_));
  auto best = first;
  std::int32_t most = 0;
  for (auto at = first; at != end; ++at) {
    const SequenceState& state = (*at)->state;
    if (state.base.cache() == nullptr) continue;
    const std::int32_t shared = engine_.cache->match(state.tokens);
    if (shared > most) {
      most = shared;
      best = at;
    }
  }
  return best;
}

// Evicts what the step may want, prompts in full, before its trees have to shrink: as soon as it is
// known whose drafts begin. Returns false if nothing was evicted.
bool Scheduler::evict() {
  PrefixCache::Slots prefill, step;
  lacking_.clear();
  gaps_.clear();
  for (const RunningSequence* const sequence : ready_) {
    if (sequence->place.state == State::at_call) continue;
    const SequenceState& state = sequence->state;
    const std::int32_t awaited = lacking_.awaits(state);
    prefill.target += TargetRunner::prefill_rows(state) - awaited;
    lacking_.add(state);
    ++step.target;
    // A tree is for two tokens at least, and comes once the draft has begun.
    const bool drafts = sequence->speculator.begun() && sequence->speculator.can_follow(state);
    if ((!drafts && !sequence->speculator.proposes()) || sequence->tokens_left() < 2) continue;
    const std::int32_t size = sequence->request.plan.size,
                       nodes = size > 0 ? size : engine_.options.max_tree_size;
    step.target += nodes;
    if (!drafts) continue;
    step.draft += nodes;
    prefill.draft += gaps_.add(state, state.length() - awaited);
  }
  const std::int32_t most = engine_.target.model->options().max_rows;
  return engine_.cache->evict(
      {prefill.target + std::min(step.target, most), prefill.draft + std::min(step.draft, most)});
}

// Runs one step for all ready sequences. Returns false, having done nothing, if slots ran out.
bool Scheduler::take_step() {
  try {
    return step(ready_);
  } catch (const LostModel&) {
    for (RunningSequence* const sequence : ready_) sequence->failure = std::current_exception();
    return true;
  } catch (...) {
    if (ready_.size() == 1) {
      ready_[0]->failure = std::current_exception();
      return true;
    }
  }
  // Nothing was committed. One of them is to blame, or all.
  for (RunningSequence*& sequence : ready_) {
    sequence->note_failure([&] { static_cast<void>(step({&sequence, 1})); });
  }
  return true;
}

bool Scheduler::step(std::span<RunningSequence* const> sequences) {
  const std::lock_guard lock(engine_.mutex);
  const DeviceScope scope(*engine_.device);
  if (judge_ == nullptr) judge_ = engine_.make_judge();
  begin_drafts(sequences);
  plan_step(engine_, stepping_, plan_);
  if (plan_.short_of_slots) {
    if (alone_ && sequences[0]->fold_copies()) return true;  // the next step finds slots
    if (alone_) sequences[0]->end_between_steps(FinishReason::memory);
    return alone_;
  }
  Step step(engine_, *judge_, plan_);
  step.grow();
  if (!step.judge()) return false;
  step.commit();
  step.account();
  for (const SequencePlan& plan : plan_.sequences) {
    RunningSequence& sequence = *plan.sequence;
    if (plan.judged && !sequence.failure)
      sequence.note_failure([&] { sequence.take_tokens(plan.prefill_rows == 0); });
  }
  return true;
}

// Runs the draft's prefills, after the target's, one pass in a step. Sequences that need no more of
// them take the step, and so do those that began without a draft.
void Scheduler::begin_drafts(std::span<RunningSequence* const> sequences) {
  const double start = now_seconds();
  stepping_.clear();
  prompts_.clear();
  DraftStartPolicy::Batch batch;
  batch.step = steps_++;
  gaps_.clear();
  for (const RunningSequence* const sequence : sequences) sequence->join(batch, gaps_);
  for (RunningSequence* const sequence : sequences) {
    if (const auto prompt = sequence->draft_prompt(batch, gaps_)) prompts_.push_back(*prompt);
  }
  evict();
  const WatchedPasses passes(*engine_.device);
  if (!prompts_.empty()) engine_.draft_runner->prefill(prompts_);
  double rows = 0.0;
  for (const DraftPrompt& prompt : prompts_) rows += prompt.rows;
  const double seconds = now_seconds() - start;
  auto prompt = prompts_.begin();
  for (RunningSequence* const sequence : sequences) {
    if (prompt == prompts_.end() || prompt->state != &sequence->state) {
      stepping_.push_back(sequence);
      continue;
    }
    sequence->take_pass(*prompt, rows > 0.0 ? seconds * prompt->rows / rows : 0.0,
                        passes.were_usual() ? rows : 0.0);
    if (sequence->goes_on_without_draft()) stepping_.push_back(sequence);
    ++prompt;
  }
}

Scheduler::Counts Scheduler::counts() {
  const Lock lock(mutex_);
  return {static_cast<std::int32_t>(running_.size()), static_cast<std::int32_t>(queue_.size()),
          preempted_};
}

// --- the queue --------------------------------------------------------------------------------

// Frees KV slots: evicts unused KV; else takes them from a queued sequence that kept slots of an
// earlier call, else from a sequence at a slow callback (which may itself wait for the sequences
// that need slots), else from the sequence admitted last.
void Scheduler::preempt() {
  if (evict()) return;
  const auto waiting = std::find_if(queue_.rbegin(), queue_.rend(), has_kv);
  if (waiting != queue_.rend()) return take_kv(**waiting);
  const auto earlier = [](const RunningSequence* a, const RunningSequence* b) {
    const auto rank = [](const SequencePlace& place) {
      return std::pair(place.state == State::at_call && place.slow, place.admitted);
    };
    return rank(a->place) < rank(b->place);
  };
  RunningSequence& sequence = **std::max_element(running_.begin(), running_.end(), earlier);
  take_kv(sequence);
  std::erase(running_, &sequence);
  if (sequence.place.state == State::ready) return put_back(sequence);
  give_up_on(sequence);  // its call will put it back
}

// Takes a sequence's KV. The preemption counts once the sequence is admitted again: its callback
// may be ending it meanwhile.
void Scheduler::take_kv(RunningSequence& sequence) {
  sequence.release_kv();
  sequence.place.preempted = true;
}

void Scheduler::put_back(RunningSequence& sequence) {
  sequence.place.state = State::queued;
  sequence.place.since = now_seconds();
  queue_.insert(queue_.begin(), &sequence);
}

void Scheduler::leave(RunningSequence& sequence) {
  stop_awaiting(sequence);
  std::erase(queue_, &sequence);
  std::erase(running_, &sequence);
  std::erase(sequence.place.call->sequences_, &sequence);
  std::erase(sequence.place.call->events_, &sequence);
  sequence.place = {};
  --sequences_;
  if (sequence.gives_kv_back) sequence.state.release();
  if (running_.empty()) judge_ = nullptr;
}

void Scheduler::stop_awaiting(RunningSequence& sequence) {
  if (sequence.place.state != State::at_call || sequence.place.slow) return;
  if (--awaited_ == 0 && leader_ != nullptr) leader_->wake_.notify_one();
}

// No step waits for it until it has come back.
void Scheduler::give_up_on(RunningSequence& sequence) {
  stop_awaiting(sequence);
  sequence.place.slow = true;
}

// Wakes one sleeping call with runnable sequences; it becomes the leader.
void Scheduler::wake_next_leader() {
  for (Call* const call : calls_) {
    if (!call->asleep_ || call->leaving_ || !call->events_.empty() || call->sequences_.empty())
      continue;
    call->wake_.notify_one();
    return;
  }
}

}  // namespace coppice
