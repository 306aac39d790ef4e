// Which sequences take which step: calls, from one thread or from many, share the models' passes.
//
// There is no thread of its own. A call adds its sequences and asks for the next one that has an
// event: it then leads steps for all sequences that are ready, its own and others', or sleeps while
// another call leads. Callbacks run on their callers' threads, between steps. A sequence whose
// callback takes longer than a step is left out until it comes back.
//
// A sequence's states (SequencePlace::State), and what moves it:
//
//                            admit()
//   outside --------> queued --------> ready <-------------+
//      ^   Call::add()  ^  <--------    |  ^               |
//      |                |   preempt()   |  | no event      |
//      |                |        lead() v  |               |
//      |                |             in_step              |
//      |                |               | event            |
//      |                |               v                  |
//      +----------------+------------ at_call -------------+
//       ended or failed    preempted             goes on
//                       (all three: deliver())
//
// ~Call() and Call::remove() take a sequence outside from any state but in_step.
//
// A call's thread is in a callback, leads (leader_), or sleeps in next() (asleep_) until it has an
// event, is stopped or interrupted, or is woken as the next leader.
//
// Invariants:
// (1) At most one call leads. mutex_ guards everything but what is marked as the leader's; it is
//     not held during a step or a callback.
// (2) A queued sequence is in queue_. One that is ready, in a step or at its call is in running_,
//     unless it was preempted at its call: deliver() then puts it back into queue_.
// (3) Only the leader moves sequences into and out of in_step. Until the step ends, nobody preempts
//     them or takes them from their call: ~Call() and remove() wait.
// (4) awaited_ counts the sequences that are at their calls and not slow.
// (5) add() and lead() reserve memory for every list that a sequence may be moved to, so that no
//     move fails.
// (6) Whoever ends next(), deliver() for an ended sequence, remove() or a call, while nobody leads,
//     wakes the next leader: no runnable sequence is left behind by sleeping calls.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "engine/running_sequence.h"
#include "engine/shared_prompts.h"
#include "engine/step_plan.h"
#include "verify/tree_judge.h"

namespace coppice {

class Scheduler;

/// A call and its sequences. For one thread.
class Call {
 public:
  /// The scheduler outlives this.
  explicit Call(Scheduler& scheduler) : scheduler_(scheduler) {}
  /// Takes back the sequences that it still has, as soon as they are in no step.
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  /// A sequence that has not ended. It is to live until it is the call's own again, or as long as
  /// this.
  void add(RunningSequence& sequence);
  /// Takes a sequence back, which may be in any state, as soon as it is in no step.
  void remove(RunningSequence& sequence);
  /// Waits for a sequence that has something to deliver, or has ended or failed. Null without
  /// sequences, once stop() was called, and once after each interrupt(). deliver() is to follow.
  RunningSequence* next();
  /// From any thread, in a callback, too: next() returns after the step at hand.
  void stop();
  /// Likewise, the next time only.
  void interrupt();
  /// Calls the sequence's callback, outside all locks. True: the sequence goes on. False: it has
  /// ended or failed, perhaps by its callback, and is the call's own again.
  bool deliver(RunningSequence& sequence);

 private:
  friend class Scheduler;

  template <typename Sequences>
  void await_step(std::unique_lock<std::mutex>& lock, const Sequences& sequences);

  Scheduler& scheduler_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::vector<RunningSequence*> sequences_, events_;
  std::condition_variable wake_;
  bool asleep_ = false, leaving_ = false, stopped_ = false, interrupted_ = false;
};

/// Writes one sequence until it has ended or failed.
void write_to_end(Scheduler& scheduler, RunningSequence& sequence);

/// Sequences run, or wait in a queue until fewer than EngineOptions::max_sequences run and the
/// target's pool has slots for what they lack. Who shares most with what is in memory is let in
/// first, but nobody is passed over without end. Short of slots KV that nobody uses is evicted,
/// trees shrink, nobody is let in, and at last the sequence that was let in last leaves its KV to
/// the tree, where it may be evicted, and goes back to the front of the queue. Only a sequence that
/// nobody runs beside ends for lack of memory.
class Scheduler {
 public:
  explicit Scheduler(Engine::Impl& engine) : engine_(engine) {}

  struct Counts {
    std::int32_t running = 0, queued = 0;
    std::int64_t preempted = 0;  ///< in all
  };
  /// From any thread.
  Counts counts();

 private:
  friend class Call;
  using Lock = std::unique_lock<std::mutex>;
  using State = SequencePlace::State;

  bool lead(Lock& lock, Call& leader);
  void await_calls(Lock& lock, const Call& leader);
  void admit();
  std::vector<RunningSequence*>::iterator next_waiting();
  bool evict();
  bool take_step();
  bool step(std::span<RunningSequence* const> sequences);
  void begin_drafts(std::span<RunningSequence* const> sequences);
  void preempt();
  static void take_kv(RunningSequence& sequence);
  void put_back(RunningSequence& sequence);
  void leave(RunningSequence& sequence);
  void stop_awaiting(RunningSequence& sequence);
  void give_up_on(RunningSequence& sequence);
  void wake_next_leader();
  std::int32_t active() const;
  double patience() const;

  Engine::Impl& engine_;
  std::mutex mutex_;  ///< of all that follows, and of sequences' places; not held during a step
  std::vector<Call*> calls_;
  std::vector<RunningSequence*> queue_;
  std::vector<RunningSequence*> running_;  ///< in the order of their turns
  Call* leader_ = nullptr;
  std::int32_t awaited_ = 0;  ///< sequences at their calls that are not slow
  std::int64_t admitted_ = 0, preempted_ = 0;
  std::size_t sequences_ = 0;
  double step_seconds_ = 0.0;
  // The leader's, during a step:
  std::unique_ptr<TreeJudge> judge_;
  std::vector<RunningSequence*> ready_, stepping_;
  std::vector<DraftPrompt> prompts_;
  SharedPrompts lacking_;
  DraftGaps gaps_;
  StepPlan plan_;
  std::int64_t steps_ = 0;
  bool alone_ = false;  ///< nobody's KV could be taken
};

}  // namespace coppice
