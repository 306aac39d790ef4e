// The best token tree in hindsight, which no growth under the same limits can exceed.
#pragma once

#include <functional>
#include <span>

#include "base/token_tree.h"
#include "base/types.h"
#include "drafting/policy.h"

namespace coppice {

/// A model's processed distribution of the token after `path` (from the root's child on), [vocab],
/// summing to 1. The row is read before the next call.
using DistributionAfter = std::function<std::span<const float>(std::span<const TokenId> path)>;

/// The tree within `limits` that maximises the expected accepted length under the target's own
/// probabilities. Text drawn from the target runs along a tree's node with probability w_T, the
/// product of T along the node's path, so that length is 1 (the bonus token) plus the sum of w_T
/// over the nodes: the sum of the result's `value`, which holds w_T (the root's is 1).
///
/// A policy cannot know T; under sampled rejection the tree would be biased besides. No tree of
/// its size is expected to bring more along text that knows nothing of the tree's noise: drawn
/// apart from the tree, or, at temperature 0, not random at all. Coupled acceptance and sampled
/// rejection do not draw text so. The one shares noise between draft and target, the other takes
/// the tree's own tokens where it can: a draft that equals the target is always accepted, and a
/// good one can exceed this length.
///
/// `draft`, if not empty, restricts the tree to tokens of positive D, and gives draft_prob;
/// without it draft_prob is T. Tokens of probability 0 are never added, so the tree can be
/// smaller than max_size. Siblings are ranked by T, the lower token first among equals. The
/// callbacks are asked once for every node that gets a chance of children.
TokenTree oracle_tree(TokenId root, const GrowthLimits& limits, const DistributionAfter& target,
                      const DistributionAfter& draft = {});

}  // namespace coppice
