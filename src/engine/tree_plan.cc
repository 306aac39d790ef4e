#include "engine/tree_plan.h"

#include <algorithm>
#include <cstddef>
#include <exception>
#include <new>
#include <utility>

#include "base/error.h"
#include "drafting/expand_rerank.h"
#include "drafting/specinfer.h"
#include "engine/check_speculation.h"
#include "engine/custom_drafting.h"
#include "sizing/sequence_sizer.h"

namespace coppice {
namespace {

// Sizes that "automatic" means where costs are not weighed: SpecInfer's <1,1,3,1,1,1,1,1>, the
// size at which DySpec (section 5) meets Sequoia, EAGLE-2's total of draft tokens for a 7B target.
constexpr std::int32_t specinfer_size = 20, sequoia_size = 64, expand_rerank_size = 60;
constexpr std::int32_t custom_size = 64;
constexpr std::int32_t sequoia_depth = 10;
constexpr std::size_t most_kept_maps = 64;

std::int32_t given_or(std::int32_t given, std::int32_t usual) { return given > 0 ? given : usual; }

TreePlan sized(std::int32_t size) {
  TreePlan plan;
  plan.size = size;
  return plan;
}

TreePlan shaped(GrowMap map, const char* planned_for) {
  TreePlan plan = sized(map.shape.size());
  plan.map = std::move(map);
  plan.planned_for = planned_for;
  return plan;
}

TreePlan shaped(const std::vector<RankPath>& paths, const char* planned_for) {
  GrowMap map;
  map.shape = TreeShape(paths);
  return shaped(std::move(map), planned_for);
}

TreePlan layered(std::vector<std::int32_t> widths) {
  TreePlan plan = sized(static_cast<std::int32_t>(nodes_of(widths)));
  plan.widths = std::move(widths);
  return plan;
}

std::unique_ptr<CustomPolicy> made_by(const Custom& asked) {
  std::unique_ptr<CustomPolicy> policy;
  try {
    policy = asked.factory();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw_failure(cat("policy ", asked.name, ": its factory threw ", quote(error.what())));
  } catch (...) {
    throw_failure(cat("policy ", asked.name, ": its factory threw what is no std::exception"));
  }
  if (policy == nullptr) {
    throw_failure(cat("policy ", asked.name, ": its factory returned nothing; return a policy"));
  }
  return policy;
}

/// Plans the trees of each policy.
struct Planning {
  std::int32_t most;
  SequoiaTrees& sequoia_trees;

  std::int32_t size_or(std::int32_t asked, std::int32_t usual) const {
    return given_or(asked, std::min(usual, most));
  }

  TreePlan operator()(const Plain&) const { return {}; }
  TreePlan operator()(const Dyspec& asked) const { return sized(asked.size); }
  TreePlan operator()(const DyspecThreshold& asked) const { return sized(asked.cap); }
  TreePlan operator()(const Chain& asked) const { return sized(asked.length); }
  TreePlan operator()(const StaticTree& asked) const { return shaped(asked.paths, ""); }
  TreePlan operator()(const SpecInfer& asked) const {
    return layered(specinfer_widths(size_or(asked.size, specinfer_size)));
  }
  TreePlan operator()(const SpecInferWidths& asked) const { return layered(asked.widths); }
  TreePlan operator()(const Sequoia& asked) const {
    const char* whose = "the acceptance vector given";
    std::vector<double> acceptance = asked.acceptance;
    if (acceptance.empty()) {
      whose = "the shipped pair's acceptance vector at temperature 0.8, rejection";
      acceptance.assign(usual_acceptance.begin(), usual_acceptance.end());
    }
    return shaped(sequoia_trees.plan(acceptance, size_or(asked.size, sequoia_size),
                                     given_or(asked.depth, sequoia_depth)),
                  whose);
  }
  TreePlan operator()(const SequoiaTree& asked) const {
    return shaped(asked.paths, "its grow map's acceptance vector");
  }
  TreePlan operator()(const ExpandRerank& asked) const {
    return sized(size_or(asked.size, expand_rerank_size));
  }
  TreePlan operator()(const Custom& asked) const { return sized(size_or(asked.size, custom_size)); }
};

/// Makes a policy of each kind.
struct PolicyMaker {
  const TreePlan& plan;
  SequenceSizer* sizer;
  const AcceptanceCalibration* calibration;
  AcceptanceRule draw;
  bool proposes;  ///< as in check_speculation.h

  using Made = std::unique_ptr<DraftPolicy>;

  Made operator()(const Plain&) const { return nullptr; }
  Made operator()(const Dyspec& asked) const { return dyspec(asked.plain_values, sizer); }
  Made operator()(const DyspecThreshold& asked) const {
    return dyspec(asked.plain_values, nullptr);
  }
  Made operator()(const Chain&) const {
    const bool any_tree = draw != AcceptanceRule::rejection;
    if (sizer == nullptr) return make_chain_policy({nullptr, nullptr, any_tree});
    return make_chain_policy({calibration, &sizer->prices(), any_tree});
  }
  Made operator()(const StaticTree&) const { return make_static_policy(plan.map.shape); }
  Made operator()(const SpecInfer&) const { return make_specinfer_policy(plan.widths); }
  Made operator()(const SpecInferWidths&) const { return make_specinfer_policy(plan.widths); }
  Made operator()(const Sequoia&) const { return make_sequoia_policy(plan.map); }
  Made operator()(const SequoiaTree&) const { return make_sequoia_policy(plan.map); }
  Made operator()(const ExpandRerank& asked) const {
    ExpandRerankOptions expansion;
    expansion.beam_width = given_or(asked.beam_width, expansion.beam_width);
    expansion.depth = given_or(asked.depth, expansion.depth);
    return make_expand_rerank_policy(expansion, draw);
  }
  Made operator()(const Custom& asked) const {
    return adapt_policy(asked.name, made_by(asked), draw);
  }

  Made dyspec(bool plain_values, SequenceSizer* sizes) const {
    const AcceptanceCalibration* values = plain_values ? nullptr : calibration;
    // DySpec's own values look at no drawn child, but to compare it with a proposal.
    const bool any_tree = (values != nullptr || proposes) && draw != AcceptanceRule::rejection;
    return make_dyspec_policy({values, sizes == nullptr ? nullptr : &sizes->prices(), any_tree});
  }
};

}  // namespace

GrowMap SequoiaTrees::plan(const std::vector<double>& acceptance, std::int32_t size,
                           std::int32_t depth) {
  const std::lock_guard lock(mutex_);
  const auto known = planned_.find({acceptance, size, depth});
  if (known != planned_.end()) return known->second;
  GrowMap map = plan_sequoia(acceptance, {size, depth});
  if (map.shape.size() == 0) {
    throw_usage(cat("acceptance-vector: all of its ", acceptance.size(),
                    " entries are 0, so that no tree pays; use policy none"));
  }
  if (planned_.size() == most_kept_maps) planned_.clear();
  return planned_[{acceptance, size, depth}] = std::move(map);
}

TreePlan plan_trees(const Speculation& speculation, std::int32_t most,
                    SequoiaTrees& sequoia_trees) {
  return std::visit(Planning{most, sequoia_trees}, speculation);
}

bool sized_by_costs(const Speculation& speculation) {
  return std::holds_alternative<Dyspec>(speculation) ||
         std::holds_alternative<DyspecThreshold>(speculation) ||
         std::holds_alternative<Chain>(speculation);
}

std::unique_ptr<DraftPolicy> make_policy(const GenerateOptions& options, const TreePlan& plan,
                                         SequenceSizer* sizer,
                                         const AcceptanceCalibration* calibration) {
  if (sizer != nullptr) calibration = &sizer->calibration();
  return std::visit(PolicyMaker{plan, sizer, calibration, drawing_rule(options), proposes(options)},
                    options.speculation);
}

}  // namespace coppice
