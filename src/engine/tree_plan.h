// From a request to the trees that it grows: what of a policy's options is checked, read from
// files and settled before any text is looked at.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "coppice.h"
#include "drafting/policy.h"
#include "drafting/sequoia.h"

namespace coppice {

class AutoSize;

/// Most draft tokens of a tree that any engine takes: the largest EngineOptions::max_tree_size.
inline constexpr std::int32_t largest_tree_size = 1024;

/// Acceptance by sibling rank that Sequoia's programme plans for without a grow map: relative
/// frequencies at 3200 nodes of the shipped pair's texts, at temperature 0.8 under rejection
/// (tests/engine/tree_policies_test.cc measures them anew). A pair's own come with its grow map.
inline constexpr std::array usual_acceptance = {0.79,  0.073, 0.038, 0.018,
                                                0.015, 0.009, 0.009, 0.006};

/// The acceptance rule of a request; if it is automatic, the one that its policy asks for: coupled
/// where only that keeps its trees exact, else rejection.
Acceptance settled_acceptance(const GenerateOptions& options);

/// How a request has its children drawn: what keeps its acceptance rule exact.
ChildDraw child_draw(const GenerateOptions& options);

/// Throws Error(usage) for options of trees that are out of range, contradict each other, belong
/// to another policy, or would bias the text. Policy::none ignores all of them.
void check_tree_options(const GenerateOptions& options);

/// What a request fixes of its trees.
struct TreePlan {
  /// Most draft tokens a step; 0: chosen step by step, from costs.
  std::int32_t size = 0;
  std::vector<std::int32_t> widths;  ///< specinfer: children of each node, by its depth
  GrowMap map;                       ///< static_tree (its shape alone) and sequoia
  std::string planned_for;           ///< sequoia: as in Statistics
};

/// Reads the tree file, plans the tree, or takes the policy's usual size, as checked `options`
/// say. `most`: draft tokens that a tree may have. Throws Error(failure) where the file cannot be
/// read or holds no tree, Error(usage) where the tree is larger than `most`.
TreePlan plan_trees(const GenerateOptions& options, std::int32_t most);

/// nullptr for Policy::none. Of the policies with automatic size, dyspec needs `auto_size` for
/// growing where `plan.size` is 0; it must outlive the policy. So must `calibration`, by which
/// dyspec and dyspec_threshold value positions unless options.plain_values says otherwise; null:
/// `auto_size`'s, or draft probability alone.
std::unique_ptr<DraftPolicy> make_policy(const GenerateOptions& options, const TreePlan& plan,
                                         AutoSize* auto_size,
                                         const AcceptanceCalibration* calibration = nullptr);

}  // namespace coppice
