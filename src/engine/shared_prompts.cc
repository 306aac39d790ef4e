#include "engine/shared_prompts.h"

#include <algorithm>

#include "verify/target_runner.h"

namespace coppice {

std::int32_t SharedPrompts::awaits(const SequenceState& text) const {
  const std::int32_t late = TargetRunner::late_rows(text);
  if (late < least_awaited || text.target_slots.size() > 0) return 0;
  const std::int32_t from = text.base.length();
  std::int32_t most = 0;
  for (const SequenceState* const other : texts_) {
    if (!text.base.is_at(other->base) || other->target_slots.size() > 0) continue;
    const std::int32_t count = std::min(late, TargetRunner::late_rows(*other));
    const auto first = text.tokens.begin() + from;
    const auto same =
        std::mismatch(first, first + count, other->tokens.begin() + from).first - first;
    most = std::max(most, static_cast<std::int32_t>(same));
    if (most == late) break;
  }
  return most < least_awaited ? 0 : most;
}

}  // namespace coppice
