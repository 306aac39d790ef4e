// Drafting that breaks the output's distribution, for tests that must notice.
#pragma once

#include <memory>

#include "drafting/policy.h"

namespace coppice {

/// Faults of drawing children (ChildDrawer::plant). All concern ChildDraw::sampled.
enum class DrawingFault {
  none,
  same_depth_shares_noise,  ///< nodes of equal depth draw with the same uniforms
  retry_shares_noise,       ///< a position retried in a later step draws with the same uniforms
  declared_is_not_sampled,  ///< children come from the two most probable tokens, D says all
};

/// DySpec whose equal values are ordered by token id.
std::unique_ptr<DraftPolicy> make_token_tie_policy();

/// DySpec that grows to max_size and then keeps the size that looks best in hindsight: the tree
/// that maximises the sum of its nodes' path probabilities per cost of its rows.
std::unique_ptr<DraftPolicy> make_hindsight_policy();

}  // namespace coppice
