// SpecInfer's expansion-based token tree: a fixed number of children per layer.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "drafting/policy.h"

namespace coppice {

/// SpecInfer (Miao et al., 2024, section 3, expansion-based construction): every node of depth i
/// gets widths[i] children, one draft pass per layer.
///
/// Limits. Growth ends at depth min(widths.size(), max_depth). A layer is drawn rank by rank, all
/// first children before any second one; where max_size is reached, it ends there. Of a layer,
/// only as many nodes are evaluated as there is room for children. A position worth less than
/// min_value is left out, with its later siblings. Every token drawn stays, and none of these
/// rules looks at a token before it is in the tree, so sampled rejection stays exact.
///
/// Children are drawn without replacement, as the source does it. SpecInfer's own multi-step
/// speculative sampling (section 4.3) draws them from D with replacement. Both are exact: each
/// child is judged by the distribution that it was drawn from, given the earlier ones. Without
/// replacement a child of the same number is accepted at least as often. Proof: in both, k
/// rejections leave the residual max(T - c_k D, 0) of mass Z(c_k), c_0 = 0, with
///   c_{k+1} = c_k + Z(c_k)               with replacement,
///   c_{k+1} = c_k + Z(c_k) / (1 - s_k)   without, s_k being the mass of the rejected tokens,
/// and the next rejection has probability Z(c_{k+1}) / Z(c_k); these ratios multiply to Z(c_k),
/// the chance that all k are rejected (its mean over s, without replacement). Z falls with a
/// slope of at most 1, so c + Z(c) rises with c: by induction c_k without replacement is never
/// the smaller one, hence Z(c_k) never the larger.
///
/// Throws Error(usage) where `widths` is empty or holds a number below 1.
std::unique_ptr<DraftPolicy> make_specinfer_policy(std::vector<std::int32_t> widths);

/// Widths for a tree of at most `tree_size` nodes, the root not counted. The paper evaluates
/// <1,1,3,1,1,1,1,1>, which has 20, and varies the number in its third place (section 6). That is
/// the rule here: <1,1,k,1,1,1,1,1> has 2 + 6 k nodes, and k is the largest that fits; up to 5
/// nodes of `tree_size` stay unused. Below 8 it is a chain of `tree_size`.
///
/// Throws Error(usage) where tree_size < 1.
std::vector<std::int32_t> specinfer_widths(std::int32_t tree_size);

}  // namespace coppice
