// What texts lack of the draft's KV, each token once.
#pragma once

#include <cstdint>

#include "models/sequence_state.h"

namespace coppice {

/// What several texts lack alike of the draft's KV in the tree, one of them computes for all
/// (drafting/draft_prefill.h). Texts of one cache or of none, which stay where they are while they
/// are counted. For one thread at a time.
class DraftGaps {
 public:
  void clear() { serial_ = 0; }
  /// Counts a text. Returns how many of its first `end` tokens it lacks and no text before does.
  std::int32_t add(const SequenceState& text, std::int32_t end) noexcept;
  /// What a text that was counted lacks of its first `end` tokens, with its part alone of what
  /// several lack: the parts of all add up to what add() has returned.
  double share(const SequenceState& text, std::int32_t end) const noexcept;

 private:
  /// Tokens behind those that the text shares with others.
  static std::int32_t own(const SequenceState& text, std::int32_t end) noexcept;

  std::uint64_t serial_ = 0;  ///< of what is counted; 0: nothing of a cache
};

}  // namespace coppice
