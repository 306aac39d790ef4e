#include "engine/scheduler.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/stopwatch.h"
#include "engine/access.h"
#include "engine/step.h"
#include "engine/watched_passes.h"

namespace coppice {
namespace {

/// Slots beside those of what texts lack, without which one more is not let in: of a few steps, of
/// two at least. With fewer slots than texts it would be preempted before it has taken part in a
/// step, and let in again, for ever.
std::int32_t headroom(std::int32_t texts) { return std::max(64, 2 * texts); }
/// How long a step waits for callbacks, in seconds: as long as steps take, within these bounds. A
/// thread that sleeps takes some time to wake.
constexpr double least_patience = 100e-6, most_patience = 20e-3;

/// Texts of the queue that are compared by what they share, and how often one of them may be passed
/// over.
constexpr std::ptrdiff_t most_compared = 64;
constexpr std::int32_t most_passed_over = 64;

bool has_kv(const TextRun* text) { return text->state.target_slots.size() > 0; }

bool has_news(const TextRun& text) {
  return text.failure != nullptr || text.ended() || text.has_piece();
}

}  // namespace

// --- a call -----------------------------------------------------------------------------------

Call::~Call() {
  std::unique_lock lock(scheduler_.mutex_);
  leaving_ = true;
  const auto in_step = [](const TextRun* text) {
    return text->place.state == TextPlace::State::in_step;
  };
  while (std::any_of(texts_.begin(), texts_.end(), in_step)) {
    asleep_ = true;
    wake_.wait(lock);
    asleep_ = false;
  }
  while (!texts_.empty()) scheduler_.leave(*texts_.back());
  std::erase(scheduler_.calls_, this);
  if (scheduler_.leader_ == nullptr) scheduler_.wake_heir();
}

void Call::add(TextRun& text) {
  const std::lock_guard lock(scheduler_.mutex_);
  Scheduler& s = scheduler_;
  // So that nothing later can fail.
  const std::size_t texts = s.texts_ + 1;
  s.queue_.reserve(texts);
  s.running_.reserve(texts);
  texts_.reserve(texts_.size() + 1);
  news_.reserve(texts_.size() + 1);
  if (texts_.empty() && std::find(s.calls_.begin(), s.calls_.end(), this) == s.calls_.end()) {
    s.calls_.push_back(this);
  }
  s.texts_ = texts;
  texts_.push_back(&text);
  text.place.state = TextPlace::State::queued;
  text.place.call = this;
  text.place.since = now_seconds();
  s.queue_.push_back(&text);
}

TextRun* Call::next() {
  std::unique_lock lock(scheduler_.mutex_);
  while (news_.empty() && !stopped_) {
    if (texts_.empty()) return nullptr;
    if (scheduler_.leader_ == nullptr && scheduler_.lead(lock, *this)) continue;
    if (stopped_) break;  // while it led
    asleep_ = true;
    wake_.wait(lock);
    asleep_ = false;
  }
  // Those who have nothing to hand on need not wait for this one.
  if (scheduler_.leader_ == nullptr) scheduler_.wake_heir();
  if (stopped_) return nullptr;
  TextRun* const text = news_.front();
  news_.erase(news_.begin());
  return text;
}

void Call::stop() {
  const std::lock_guard lock(scheduler_.mutex_);
  stopped_ = true;
  wake_.notify_one();
}

bool Call::hand_on(TextRun& text) {
  if (!text.failure) text.note_failure([&] { text.call_back(); });
  const std::lock_guard lock(scheduler_.mutex_);
  Scheduler& s = scheduler_;
  if (text.failure || text.ended()) {
    if (s.engine_.fault == EngineFault::preempted_as_it_ends) {
      s.engine_.fault = EngineFault::none;
      Scheduler::take_kv(text);
    }
    s.leave(text);
    if (s.leader_ == nullptr) s.wake_heir();
    return false;
  }
  s.stop_awaiting(text);
  const double now = now_seconds();
  text.place.slow = now - text.place.since > s.patience();
  if (text.place.preempted) {
    s.put_back(text);
  } else {
    text.place.state = TextPlace::State::ready;
  }
  return true;
}

void write_to_end(Scheduler& scheduler, TextRun& text) {
  if (text.ended()) return;
  Call call(scheduler);
  call.add(text);
  while (call.next() != nullptr) call.hand_on(text);
}

// --- steps ------------------------------------------------------------------------------------

// False: there is no text that could take one.
bool Scheduler::lead(Lock& lock, Call& leader) {
  // So that nothing fails while it leads: nobody else would take over.
  for (auto* const list : {&ready_, &stepping_}) list->reserve(texts_);
  lacking_.reserve(texts_);
  plan_.reserve(texts_);
  prompts_.reserve(texts_);
  leader_ = &leader;
  await_calls(lock, leader);
  admit();
  ready_.clear();
  for (TextRun* const text : running_) {
    if (text->place.state != State::ready) continue;
    text->place.state = State::in_step;
    ready_.push_back(text);
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
  for (TextRun* const text : ready_) {
    if (!has_news(*text)) {
      text->place.state = State::ready;
      continue;
    }
    text->place.state = State::at_call;
    text->place.since = end;
    if (!text->place.slow) ++awaited_;
    Call& call = *text->place.call;
    call.news_.push_back(text);
    if (&call != &leader) call.wake_.notify_one();
  }
  // Whoever was left out has the next turn.
  if (plan_.texts.size() < ready_.size()) {
    for (const TextPlan& plan : plan_.texts) {
      // In the memory that it had. The plan is an older one if the step failed before it had its
      // own.
      if (std::erase(running_, plan.text) > 0) running_.push_back(plan.text);
    }
  }
  if (!had_slots) preempt();
  leader_ = nullptr;
  // A call may be waiting for its texts to leave the step.
  for (Call* const call : calls_) {
    if (call->leaving_) call->wake_.notify_one();
  }
  return true;
}

// Texts that were handed on at the same time go on together.
void Scheduler::await_calls(Lock& lock, const Call& leader) {
  const auto at_call = [](const TextRun* text) {
    return text->place.state == State::at_call && !text->place.slow;
  };
  if (awaited_ == 0) return;
  // This very thread is in the callback of one, which waits for this call's texts.
  for (TextRun* const text : running_) {
    if (at_call(text) && text->place.call->thread_ == leader.thread_) give_up_on(*text);
  }
  leader_->wake_.wait_for(lock, std::chrono::duration<double>(patience()),
                          [&] { return awaited_ == 0; });
  for (TextRun* const text : running_) {
    if (at_call(text)) give_up_on(*text);
  }
}

double Scheduler::patience() const {
  return std::clamp(step_seconds_, least_patience, most_patience);
}

std::int32_t Scheduler::active() const {
  return static_cast<std::int32_t>(
      std::count_if(running_.begin(), running_.end(), [](const TextRun* text) {
        return text->place.state != State::at_call || !text->place.slow;
      }));
}

void Scheduler::admit() {
  std::int32_t running = active(), lacking = 0;
  lacking_.clear();
  // Of tokens that several lack, one computes them for all.
  const auto lacks = [&](const SequenceState& state) {
    return TargetRunner::late_rows(state) - lacking_.awaits(state);
  };
  for (TextRun* const text : running_) {
    if (text->place.state == State::ready && TargetRunner::late_rows(text->state) > 0) {
      text->find_shared();
    }
    lacking += lacks(text->state);
    lacking_.add(text->state);
  }
  while (!queue_.empty() && running < engine_.options.max_sequences) {
    const auto at = next_waiting();
    TextRun& text = **at;
    text.state.find_shared();
    const std::int32_t more = lacks(text.state), wanted = lacking + more + headroom(running + 1);
    const std::int32_t room = engine_.target_runner->free_slots() + engine_.cache->evictable();
    if (running > 0 && wanted > room) return text.state.base.rewind(0);
    engine_.cache->evict({wanted, 0});
    for (auto passed = queue_.begin(); passed != at; ++passed) ++(*passed)->place.passed_over;
    queue_.erase(at);
    running_.push_back(&text);
    text.place.state = State::ready;
    if (std::exchange(text.place.preempted, false)) ++text.account.preemptions;
    if (text.place.admitted == 0) text.note_cached();
    text.place.admitted = ++admitted_;
    text.account.queue_seconds += now_seconds() - text.place.since;
    lacking += more;
    lacking_.add(text.state);
    ++running;
  }
}

// Who was preempted, or has waited for long, else who shares most. The queue is not empty.
std::vector<TextRun*>::iterator Scheduler::next_waiting() {
  const auto first = queue_.begin();
  const TextPlace& place = (*first)->place;
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

// What the step may want, prompts in full, before its trees have to shrink: as soon as it is known
// whose drafts begin. False: nothing was taken.
bool Scheduler::evict() {
  PrefixCache::Slots late, step;
  lacking_.clear();
  gaps_.clear();
  for (const TextRun* const text : ready_) {
    if (text->place.state == State::at_call) continue;
    const SequenceState& state = text->state;
    const std::int32_t awaited = lacking_.awaits(state);
    late.target += TargetRunner::late_rows(state) - awaited;
    lacking_.add(state);
    ++step.target;
    // A tree is for two tokens at least, and comes once the draft has begun.
    const bool drafts = text->speculator.begun() && text->speculator.can_follow(state);
    if ((!drafts && !text->speculator.proposes()) || text->tokens_left() < 2) continue;
    const std::int32_t size = text->request.plan.size,
                       nodes = size > 0 ? size : engine_.options.max_tree_size;
    step.target += nodes;
    if (!drafts) continue;
    step.draft += nodes;
    late.draft += gaps_.add(state, state.length() - awaited);
  }
  const std::int32_t most = engine_.target.model->options().max_rows;
  return engine_.cache->evict(
      {late.target + std::min(step.target, most), late.draft + std::min(step.draft, most)});
}

// Of all texts that are ready. False: too few KV slots, and nothing was done.
bool Scheduler::take_step() {
  try {
    return step(ready_);
  } catch (...) {
    if (ready_.size() == 1) {
      ready_[0]->failure = std::current_exception();
      return true;
    }
  }
  // Nothing was committed. One of them is to blame, or all.
  for (TextRun*& text : ready_) {
    text->note_failure([&] { static_cast<void>(step({&text, 1})); });
  }
  return true;
}

bool Scheduler::step(std::span<TextRun* const> texts) {
  const std::lock_guard lock(engine_.mutex);
  const DeviceScope scope(*engine_.device);
  if (judge_ == nullptr) judge_ = engine_.make_judge();
  begin_drafts(texts);
  plan_step(engine_, stepping_, plan_);
  if (plan_.short_of_slots) {
    if (alone_ && texts[0]->fold_copies()) return true;  // the next step finds slots
    if (alone_) texts[0]->end_between_steps(FinishReason::memory);
    return alone_;
  }
  Step step(engine_, *judge_, plan_);
  step.grow();
  if (!step.judge()) return false;
  step.commit();
  step.account();
  for (const TextPlan& plan : plan_.texts) {
    TextRun& text = *plan.text;
    if (plan.judged && !text.failure)
      text.note_failure([&] { text.take_tokens(plan.late_rows == 0); });
  }
  return true;
}

// The draft's prefills come after the target's, one pass in a step. Who needs no more of them goes
// on, and so does who began without.
void Scheduler::begin_drafts(std::span<TextRun* const> texts) {
  const double start = now_seconds();
  stepping_.clear();
  prompts_.clear();
  DraftOutlook::Batch batch;
  batch.step = steps_++;
  gaps_.clear();
  for (const TextRun* const text : texts) text->join(batch, gaps_);
  for (TextRun* const text : texts) {
    if (const auto prompt = text->draft_prompt(batch, gaps_)) prompts_.push_back(*prompt);
  }
  evict();
  const WatchedPasses passes(*engine_.device);
  if (!prompts_.empty()) engine_.draft_runner->prefill(prompts_);
  double rows = 0.0;
  for (const DraftPrompt& prompt : prompts_) rows += prompt.rows;
  const double seconds = now_seconds() - start;
  auto prompt = prompts_.begin();
  for (TextRun* const text : texts) {
    if (prompt == prompts_.end() || prompt->state != &text->state) {
      stepping_.push_back(text);
      continue;
    }
    text->take_pass(*prompt, rows > 0.0 ? seconds * prompt->rows / rows : 0.0,
                    passes.were_usual() ? rows : 0.0);
    if (text->goes_on_without_draft()) stepping_.push_back(text);
    ++prompt;
  }
}

// --- the queue --------------------------------------------------------------------------------

// KV that nobody uses by now first, then who waits in the queue with slots of earlier calls, then a
// text at a slow callback, which may itself be waiting for those that want them, then the text that
// was let in last.
void Scheduler::preempt() {
  if (evict()) return;
  const auto waiting = std::find_if(queue_.rbegin(), queue_.rend(), has_kv);
  if (waiting != queue_.rend()) return take_kv(**waiting);
  const auto earlier = [](const TextRun* a, const TextRun* b) {
    const auto rank = [](const TextPlace& place) {
      return std::pair(place.state == State::at_call && place.slow, place.admitted);
    };
    return rank(a->place) < rank(b->place);
  };
  TextRun& text = **std::max_element(running_.begin(), running_.end(), earlier);
  take_kv(text);
  std::erase(running_, &text);
  if (text.place.state == State::ready) return put_back(text);
  give_up_on(text);  // its call will put it back
}

// Counted when it is let in again: its callback may be ending it meanwhile.
void Scheduler::take_kv(TextRun& text) {
  text.release_kv();
  text.place.preempted = true;
}

void Scheduler::put_back(TextRun& text) {
  text.place.state = State::queued;
  text.place.since = now_seconds();
  queue_.insert(queue_.begin(), &text);
}

void Scheduler::leave(TextRun& text) {
  stop_awaiting(text);
  std::erase(queue_, &text);
  std::erase(running_, &text);
  std::erase(text.place.call->texts_, &text);
  std::erase(text.place.call->news_, &text);
  text.place = {};
  --texts_;
  if (text.gives_kv_back) text.state.release();
  if (running_.empty()) judge_ = nullptr;
}

void Scheduler::stop_awaiting(TextRun& text) {
  if (text.place.state != State::at_call || text.place.slow) return;
  if (--awaited_ == 0 && leader_ != nullptr) leader_->wake_.notify_one();
}

// No step waits for it until it has come back.
void Scheduler::give_up_on(TextRun& text) {
  stop_awaiting(text);
  text.place.slow = true;
}

// Somebody who sleeps, and has texts that could take a step, leads.
void Scheduler::wake_heir() {
  for (Call* const call : calls_) {
    if (!call->asleep_ || call->leaving_ || !call->news_.empty() || call->texts_.empty()) continue;
    call->wake_.notify_one();
    return;
  }
}

}  // namespace coppice
