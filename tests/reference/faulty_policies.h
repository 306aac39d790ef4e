// Growth that breaks the output's distribution under sampled rejection.
#pragma once

#include <memory>

#include "drafting/policy.h"

namespace coppice::testing {

/// DySpec whose equal values are ordered by token id.
std::unique_ptr<DraftPolicy> make_token_tie_policy();

/// DySpec that grows to max_size and then keeps the size that looks best in hindsight: the tree
/// that maximises the sum of its nodes' path probabilities per cost of its rows.
std::unique_ptr<DraftPolicy> make_hindsight_policy();

}  // namespace coppice::testing
