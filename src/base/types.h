// Small names that every room of the house uses.
#pragma once

#include <cstdint>

#include "base/token_id.h"

namespace coppice {

/// A slot of a paged KV pool: page = slot / page_size, offset = slot % page_size.
using KvSlot = std::int32_t;

/// How children of a tree node are chosen from the draft's distribution.
enum class ChildDraw {
  sampled,  ///< without replacement, in drawn order (recursive rejection)
  top,      ///< most probable first (target temperature 0)
  coupled,  ///< largest log D + shared Gumbel noise first (coupled acceptance)
};

/// Who proposed a tree's node.
enum class Origin : std::uint8_t {
  model,   ///< drawn from the draft model's distribution
  lookup,  ///< read from a text: certain, for it comes from no distribution
};

}  // namespace coppice
