// Which query rows of a pass see which KV token.
#pragma once

#include <cstdint>
#include <span>

#include "base/types.h"

namespace coppice {

/// A token whose KV was never computed: nothing attends to it, and nothing is written to it.
inline constexpr KvSlot no_slot = -1;

/// KV tokens of a pass that the same query rows see, [q_begin, q_end), by the slots they lie in. In
/// depth-first order those that see a token, of a text or of its tree, are an interval.
struct KvSegment {
  std::span<const KvSlot> slots;
  std::int32_t q_begin = 0;
  std::int32_t q_end = 0;
  /// All of former passes: attention may read them before this pass writes its own tokens. Only
  /// here may there be no_slot.
  bool former = false;
  /// Position of the first token in the text; the next ones follow it. Without a default, as
  /// attention by a window depends on it.
  std::int32_t first_position;
};

/// One token of a segment, as attention on a GPU reads it.
struct VisibleKv {
  KvSlot slot = 0;
  std::int32_t q_begin = 0;
  std::int32_t q_end = 0;
  std::int32_t position = 0;  ///< in the text
};

}  // namespace coppice
