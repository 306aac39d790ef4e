// DySpec's Algorithm 1 as printed: one draft call per node, residual vectors, a heap searched
// from end to end. Its slips corrected: y is drawn before its node is added, and growth also
// ends when no position has mass or the limits admit none.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/random.h"
#include "base/types.h"
#include "drafting/policy.h"

namespace coppice::testing {

/// D at the node with this path of tokens (from the root's child on), [vocab], summing to 1.
using DraftByPath = std::function<std::vector<float>(const std::vector<TokenId>& path)>;

enum class NaiveValues {
  residual,  ///< v R[y] and v (1 - R[y]), R renormalised after every draw, as printed
  plain,     ///< w (1 - sum of D), the same number by fact: exact ties stay exact
};

struct NaiveNode {
  std::vector<std::int32_t> ranks;  ///< path of sibling ranks
  std::vector<TokenId> tokens;      ///< path of tokens
  double value = 0.0;
};

struct NaiveTree {
  std::vector<NaiveNode> nodes;  ///< in the order added
  std::int32_t draft_calls = 0;
};

/// Draws with the uniforms that AcceptanceRule::rejection uses under `key`. Values within a
/// relative `tie` of the largest count as equal to it.
NaiveTree naive_dyspec(const DraftByPath& draft, const GrowthLimits& limits, const StepKey& key,
                       NaiveValues values, double tie);

}  // namespace coppice::testing
