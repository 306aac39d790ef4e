// KV of sequences that nobody generates with: kept for their next use, taken back if texts lack it.
#pragma once

#include <cstdint>
#include <list>
#include <mutex>

#include "models/loaded_model.h"
#include "models/sequence_state.h"

namespace coppice {

/// The sequences of an engine that are in no step and in no queue, the least recently used first.
/// Taking KV leaves their tokens: what is missing is computed again before their next step, so that
/// only time is lost.
class IdleKv {
 public:
  /// Both models outlive this; the draft's pool may be null.
  IdleKv(const LoadedModel& target, const LoadedModel& draft) : target_(target), draft_(draft) {}

  /// A sequence's place among them. What else changes the sequence's KV does so by this, or while
  /// the scheduler has it.
  class Place {
   public:
    /// The sequence has no KV yet. Both outlive this.
    Place(IdleKv& all, SequenceState& state) : all_(all), own_(1, &state), place_(own_.begin()) {}
    ~Place() { leave(); }
    Place(const Place&) = delete;
    Place& operator=(const Place&) = delete;

    /// Nobody generates with it from now on: it is the most recently used. Cannot fail.
    void enter();
    /// From now on its KV is its own.
    void leave();
    /// SequenceState::cut().
    void cut(std::int32_t length);

   private:
    IdleKv& all_;
    std::list<SequenceState*> own_;                    ///< it, unless it is among the idle ones
    const std::list<SequenceState*>::iterator place_;  ///< in either list
  };

  /// KV slots of both pools.
  struct Slots {
    std::int32_t target = 0, draft = 0;
  };
  /// Takes KV, the ends of texts first, until `wanted` slots are free or nothing is left to take.
  /// False: nothing was taken.
  bool make_room(const Slots& wanted);
  /// Of the target's pool, that could be taken.
  std::int32_t target_slots() const;

 private:
  const LoadedModel& target_;
  const LoadedModel& draft_;
  mutable std::mutex mutex_;  ///< of the list, and of its sequences' KV
  std::list<SequenceState*> idle_;
};

}  // namespace coppice
