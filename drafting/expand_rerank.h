// EAGLE-2's context-dependent draft tree: expand a beam, keep the best nodes.
#pragma once

#include <cstdint>
#include <memory>

#include "base/types.h"
#include "drafting/policy.h"

namespace coppice {

struct ExpandRerankOptions {
  std::int32_t beam_width = 10;  ///< nodes expanded per layer, and children of each
  std::int32_t depth = 6;        ///< layers
};

/// EAGLE-2 (Li et al., 2024, sections 4.1 and 4.2). Expansion: of every layer the beam_width
/// nodes of largest w, the product of D along their path, get beam_width children each. Reranking:
/// of all nodes the max_size of largest w are kept, the shallower one among equals, then the one
/// drawn first. As w never increases along a path, they form a tree. A node's value is its w.
///
/// What cannot be kept is not expanded: max_size nodes stand before it, and so before whatever
/// would grow from it. The tree is the same. There is one draft pass per layer of the tree, and
/// at most one more, whose children are all dropped.
///
/// Limits. At most max_size nodes of depth at most min(depth, max_depth), all of w >= min_value.
///
/// The source's order of children decides which are looked at: with AcceptanceRule::greedy they are
/// the beam_width most probable, as in the paper (under either rule); with AcceptanceRule::coupled
/// those of the largest log D + noise. Both are exact under coupled acceptance and at temperature
/// 0, where any tree is. Under coupled acceptance w ignores the noise that decides, so that trees
/// ordered by drawn rank (DySpec's, SpecInfer's) mostly accept more there.
///
/// Sampled rejection would be biased, because tokens are kept for what they are while it judges
/// them as draws from D. (EAGLE-2 itself takes chosen children as certain there, a rule that
/// coppice does not have.)
///
/// Throws Error(usage) for AcceptanceRule::rejection and for options below 1.
std::unique_ptr<DraftPolicy> make_expand_rerank_policy(const ExpandRerankOptions& options,
                                                       AcceptanceRule draw);

}  // namespace coppice
