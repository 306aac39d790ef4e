// One token tree out of several drafts' trees.
#pragma once

#include <span>

#include "base/token_tree.h"
#include "base/types.h"

namespace coppice {

/// The union of trees over one root by their paths of tokens (SpecInfer, Miao et al., 2024,
/// section 3, token tree merge): a path that several trees hold stands once. Siblings stand in
/// order of first appearance, trees being read in the given order, and are ranked anew.
///
/// draft_prob and value are those of the first tree that holds the path. path_prob is the product
/// of these, which may mix drafts. source is the node's own index: the drafts evaluated it under
/// different ids, so a caller that keeps their KV finds its nodes again by path.
///
/// Exact under coupled acceptance and at temperature 0, where any tree is. Under sampled
/// rejection it is not: which children a node has and in which order depends on what the other
/// drafts drew, and no single D describes them. (SpecInfer judges such children by one draft's
/// distribution each, drawn with replacement.) Hence `draw`, how all of the trees were drawn.
///
/// Throws Error(usage) for ChildDraw::sampled, for no trees and for different root tokens.
TokenTree merge_trees(std::span<const TokenTree> trees, ChildDraw draw);

}  // namespace coppice
