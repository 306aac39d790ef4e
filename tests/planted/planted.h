// Faults in sources of the product, for tests that must notice. The product has none of them:
// planted/CMakeLists.txt says which lines they change, and of which sources tests link copies.
#pragma once

#include <atomic>

namespace coppice::testing {

enum class Fault {
  none,
  // Of the engine:
  twins_grow_together,  ///< sequences of equal noise share the common heap
  copies_counted_once,  ///< plans by sequence take what sequences share for read once
  hit_counted_twice,    ///< what a waiting sequence finds is added to what it had found before
  preempted_noise_is_reused,     ///< a preempted sequence's steps are counted from 0 again
  shared_steps_are_not_learned,  ///< learning from steps of several sequences throws
  looks_under_rejection,         ///< sizes by costs drop children that were drawn, looked at
  preempted_as_it_ends,          ///< others take, once, what a sequence has that has just ended
  // Of the prefix cache:
  split_shares_slot,      ///< both parts of a split have one slot
  fork_without_user,      ///< a fork does not count
  evicts_pinned,          ///< leaves with a reference are taken, too
  stale_split,            ///< the lower part of a split keeps the upper one's first tokens
  stale_slots,            ///< and its slots of the target
  draft_outlives_target,  ///< an evicted token's draft KV stays
};

inline std::atomic<Fault> planted_fault = Fault::none;

/// Whether this fault is at work.
inline bool is_planted(Fault fault) { return planted_fault == fault; }
/// The same of one that shows once.
inline bool take_planted(Fault fault) {
  return planted_fault.compare_exchange_strong(fault, Fault::none);
}

/// Sets a fault to work, one at a time.
class Planted {
 public:
  explicit Planted(Fault fault) { planted_fault = fault; }
  ~Planted() { planted_fault = Fault::none; }
  Planted(const Planted&) = delete;
  Planted& operator=(const Planted&) = delete;
};

}  // namespace coppice::testing
