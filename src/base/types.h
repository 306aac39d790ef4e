// Small names that every room of the house uses.
#pragma once

#include <cstdint>

#include "base/token_id.h"

namespace coppice {

/// A slot of a paged KV pool: page = slot / page_size, offset = slot % page_size.
using KvSlot = std::int32_t;

/// How a tree is verified, and how its children are drawn to suit: the draft and the target use
/// the same rule, but for children that are drawn as under `greedy` where any tree is exact.
enum class AcceptanceRule : std::int32_t {
  rejection,  ///< recursive rejection; children are sampled without replacement, in drawn order
  greedy,     ///< the target's argmax (temperature 0); children are the draft's most probable
  coupled,    ///< shared Gumbel noise G of a position and token: largest log D + G, log T + G
};

/// Who proposed a tree's node.
enum class Origin : std::uint8_t {
  model,   ///< drawn from the draft model's distribution
  lookup,  ///< read from a text: certain, for it comes from no distribution
};

}  // namespace coppice
