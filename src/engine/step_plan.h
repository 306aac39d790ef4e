// What each sequence does in a step that they share.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "drafting/policy.h"
#include "engine/running_sequence.h"

namespace coppice {

struct SequencePlan {
  RunningSequence* sequence = nullptr;
  /// Rows of tokens before the root that have no KV yet.
  std::int32_t prefill_rows = 0;
  /// The root is judged. Else the prefill rows are a part of a prefill.
  bool judged = true;
  std::optional<GrowthLimits> limits;  ///< of its tree; none: the root alone
};

struct StepPlan {
  std::vector<SequencePlan> sequences;
  Grower* common = nullptr;  ///< where some of the trees grow together
  /// Sequences whose sizes are chosen from costs, those that grow apart included.
  std::vector<BatchSizer::Text> adaptive;
  bool short_of_slots =
      false;  ///< a sequence was left out since the target's pool has no slot for it

  void reserve(std::size_t count) {
    sequences.reserve(count);
    adaptive.reserve(count);
  }
};

/// Divides the passes' rows and the pools' free slots among sequences that can take a step. The
/// order says who comes first; who finds no room is left out. Trees of fixed size have it or wait
/// for a step that has room for them, automatic ones share what is left (together, but for
/// sequences whose noise is not their own: src/sizing/README.md), prompts have what trees leave:
/// parts of those that do not fit; who lacks tokens that an earlier one computes waits for them.
/// Short of slots all trees shrink, down to none.
void plan_step(Engine::Impl& engine, std::span<RunningSequence* const> sequences, StepPlan& plan);

}  // namespace coppice
