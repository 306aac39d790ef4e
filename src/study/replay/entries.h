// Which tokens of a node are recorded, and what is left of its distributions beside them.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/types.h"
#include "study/replay/recording.h"

namespace coppice::study {

/// The `count` tokens of largest draft * noise ([vocab] both; no noise counts as all ones), in the
/// order in which ChildDrawer draws them: lower id first among equals, none of probability 0.
std::vector<TokenId> settled_children(std::span<const float> draft, std::span<const float> noise,
                                      std::int32_t count);

/// A node's children in both orders, as far as they are recorded.
struct DrawnOrders {
  std::vector<TokenId> settled;  ///< by settled_children()
  std::vector<TokenId> sampled;  ///< drawn from D without replacement; empty at temperature 0
};

/// Appends a node's rows to `out`, all but its parent. Entries are the tokens of both orders and
/// the `top_k` of largest max(D, T). `target`, `draft`: [vocab].
void append_node(const DrawnOrders& orders, std::span<const float> target,
                 std::span<const float> draft, std::int32_t top_k, TokenId target_token,
                 RecordedPosition& out);

}  // namespace coppice::study
