// From what is asked of trees to the policy that grows them.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <vector>

#include "coppice.h"
#include "drafting/policy.h"
#include "drafting/sequoia.h"

namespace coppice {

class SequenceSizer;

/// Acceptance by sibling rank that Sequoia's programme plans for without a grow map: relative
/// frequencies at 3200 nodes of the shipped pair's texts, at temperature 0.8 under rejection
/// (tests/engine/tree_policies_test.cc measures them anew). A pair's own come with its grow map.
inline constexpr std::array usual_acceptance = {0.79,  0.073, 0.038, 0.018,
                                                0.015, 0.009, 0.009, 0.006};

/// What a request fixes of its trees.
struct TreePlan {
  /// Most draft tokens a step; 0: chosen step by step, from costs, or max_tree_size.
  std::int32_t size = 0;
  std::vector<std::int32_t> widths;  ///< SpecInfer: children of each node, by its depth
  GrowMap map;                       ///< StaticTree and SequoiaTree (the shape alone), Sequoia
  std::string planned_for;           ///< Sequoia: as in Used
};

/// What Sequoia's programme found: large trees take it milliseconds, and requests come back to the
/// same few. Safe to use from several threads.
class SequoiaTrees {
 public:
  /// plan_sequoia(), once. Throws Error(usage) if the best tree is empty.
  GrowMap plan(const std::vector<double>& acceptance, std::int32_t size, std::int32_t depth);

 private:
  std::mutex mutex_;
  std::map<std::tuple<std::vector<double>, std::int32_t, std::int32_t>, GrowMap> planned_;
};

/// Plans the trees of checked `speculation`, which fits `most` draft tokens, or takes its policy's
/// usual size. Throws as SequoiaTrees does.
TreePlan plan_trees(const Speculation& speculation, std::int32_t most, SequoiaTrees& sequoia_trees);

/// Whether automatic sizes are chosen from costs; else they are the policy's usual size, or what
/// its tree or widths say.
bool sized_by_costs(const Speculation& speculation);

/// nullptr for Plain. Of the policies with automatic size, dyspec needs `sizer` for growing
/// where `plan.size` is 0; it must outlive the policy. So must `calibration`, by which dyspec and
/// dyspec_threshold value positions unless plain_values says otherwise; null: `sizer`'s, or
/// draft probability alone. Throws Error(failure) where a custom factory throws or gives none.
std::unique_ptr<DraftPolicy> make_policy(const GenerateOptions& options, const TreePlan& plan,
                                         SequenceSizer* sizer,
                                         const AcceptanceCalibration* calibration = nullptr);

}  // namespace coppice
