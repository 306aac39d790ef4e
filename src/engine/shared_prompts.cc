#include "engine/shared_prompts.h"

#include <algorithm>

#include "verify/target_runner.h"

namespace coppice {

std::int32_t SharedPrompts::awaits(const SequenceState& sequence) const {
  const std::int32_t prefill = TargetRunner::prefill_rows(sequence);
  if (prefill < least_awaited || sequence.target_slots.size() > 0) return 0;
  const std::int32_t from = sequence.base.length();
  std::int32_t most = 0;
  for (const SequenceState* const other : sequences_) {
    if (!sequence.base.is_at(other->base) || other->target_slots.size() > 0) continue;
    const std::int32_t count = std::min(prefill, TargetRunner::prefill_rows(*other));
    const auto first = sequence.tokens.begin() + from;
    const auto same =
        std::mismatch(first, first + count, other->tokens.begin() + from).first - first;
    most = std::max(most, static_cast<std::int32_t>(same));
    if (most == prefill) break;
  }
  return most < least_awaited ? 0 : most;
}

}  // namespace coppice
