// How far a replayed step may be from the step that the models would have made.
#pragma once

#include <cstdint>
#include <vector>

#include "base/random.h"
#include "drafting/policy.h"
#include "study/replay/sources.h"
#include "verify/acceptance.h"

namespace coppice::study {

/// What nodes that could not be grown would have taken from others.
enum class Displacement {
  none,      ///< nothing: the shape is fixed
  by_value,  ///< places of nodes of lower value (DySpec; rerankers, whose value is the path's D)
};

/// How a policy grows, as far as bounds need to know.
struct GrowthKind {
  Displacement displacement = Displacement::none;
  std::int32_t depth = 1 << 20;  ///< most layers
};

struct StepBounds {
  std::int32_t lowest = 1, highest = 1;  ///< accepted length, the bonus token included
  bool ended_short = false;  ///< the walk ended at a node that lacks children for want of records
  bool doubtful = false;     ///< a decision depends on what was not recorded
};

/// Bounds the accepted length of a judged step, the random numbers being the same.
///
/// Growth: a node that is not recorded gets no children, and one whose entries are used up no
/// more. Had they been recorded, nodes would stand below them, at most as many as the tree's size
/// and depth leave room for, and others would have lost their places to them: the lower bound
/// keeps what they could not displace, and the upper bound counts all they could have added where
/// the walk ended at them.
///
/// Decisions, under `rejection` only: with c the residual's scalar (verify/rejection.cc), the
/// mass of max(T - c D, 0) over tokens that are not recorded is known for c = 0 and c = 1, and
/// lies between target_rest - c draft_rest and target_rest - overlap for larger c. So the first
/// two children are judged exactly, later ones with an interval of acceptance; a random number
/// within it is a doubt, and from there on all below that node is open.
class BoundsFinder {
 public:
  /// Looks at a tree as it was grown from `draft`.
  void begin(const TokenTree& tree, const GrowthLimits& limits, const GrowthKind& kind,
             const RecordedDraft& draft);
  /// Of a verdict on that tree; there may be several.
  StepBounds find(const TokenTree& tree, const GrowthKind& kind, const Verdict& verdict,
                  const RecordedDraft& draft, const RecordedTarget& target, bool rejection,
                  const StepKey& key) const;

 private:
  std::int32_t room_below(const TokenTree& tree, const GrowthLimits& limits, const GrowthKind& kind,
                          std::int32_t node) const;
  bool in_doubt(const TokenTree& tree, std::int32_t node, std::uint64_t node_key,
                std::int32_t accepted, const RecordedDraft& draft, const RecordedTarget& target,
                const StepKey& key) const;

  std::vector<std::int32_t> tree_node_;  ///< by arena node, -1: not in the tree
  std::vector<std::int32_t> extra_;      ///< by tree node: levels that may be missing below it
  double largest_missing_ = 0.0;         ///< value of what is missing
  bool grew_short_ = false;
};

}  // namespace coppice::study
