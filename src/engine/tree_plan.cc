#include "engine/tree_plan.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "drafting/any_tree.h"
#include "drafting/expand_rerank.h"
#include "drafting/specinfer.h"
#include "engine/policy_registry.h"
#include "engine/policy_table.h"
#include "sizing/auto_size.h"

namespace coppice {
namespace {

// Sizes that "automatic" means where costs are not weighed: SpecInfer's <1,1,3,1,1,1,1,1>, the
// size at which DySpec (section 5) meets Sequoia, EAGLE-2's total of draft tokens for a 7B target.
constexpr std::int32_t specinfer_size = 20, sequoia_size = 64, expand_rerank_size = 60;
constexpr std::int32_t custom_size = 64;
constexpr std::int32_t sequoia_depth = 10;
constexpr std::size_t most_kept_maps = 64;

std::int64_t nodes_of(const std::vector<std::int32_t>& widths) {
  constexpr std::int64_t enough = std::int64_t{1} << 31;  // so that no product overflows
  std::int64_t layer = 1, nodes = 0;
  for (const std::int32_t width : widths) {
    layer = std::min(layer * width, enough);
    nodes = std::min(nodes + layer, enough);
  }
  return nodes;
}

std::string text_of(const std::vector<std::int32_t>& widths) {
  constexpr std::size_t most_shown = 16;
  std::string text;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    if (i > 0) text += ',';
    if (i == most_shown) return text + "...";
    text += std::to_string(widths[i]);
  }
  return text;
}

void check_belongs(const GenerateOptions& options, PolicyOption option, bool given) {
  if (!given || takes(options.policy, option)) return;
  throw_usage(cat(name_of(option), ": it belongs to policy ", names_of(takers_of(option), " or "),
                  ", not to ", name_of(options.policy), "; leave it out, or change the policy"));
}

void check_count(const char* option, std::int32_t count) {
  if (count >= 0 && count <= largest_tree_size) return;
  throw_usage(cat(option, " ", count, ": use 1 to ", largest_tree_size,
                  ", or 0 for the policy's usual one"));
}

void check_widths(const GenerateOptions& options) {
  for (const std::int32_t width : options.widths) {
    if (width < 1) {
      throw_usage(cat("widths ", text_of(options.widths), ": a layer of width ", width,
                      "; use 1 or more for every layer"));
    }
  }
  if (nodes_of(options.widths) > largest_tree_size) {
    throw_usage(cat("widths ", text_of(options.widths), ": they multiply to more than ",
                    largest_tree_size, " draft tokens; use smaller or fewer ones"));
  }
}

void check_fits(const std::string& what, std::int64_t size, std::int32_t most) {
  if (size <= most) return;
  throw_usage(cat(what, ": a tree of ", size, " draft tokens, of which ",
                  most == largest_tree_size ? "an engine takes at most "
                                            : "this engine was loaded for at most ",
                  most, " (max_tree_size); use a smaller tree",
                  most == largest_tree_size ? "" : ", or load it for larger ones"));
}

GrowMap read_map(const GenerateOptions& options) {
  GrowMap map;
  if (options.policy == Policy::sequoia) {
    map = read_grow_map(options.tree);
  } else {
    map.shape = read_tree_shape(options.tree);
  }
  if (map.shape.size() == 0) {
    throw_failure(cat(options.tree.string(),
                      ": its tree is empty; list at least one path, or use policy none"));
  }
  return map;
}

void require_some(const TreeShape& shape, const std::vector<double>& acceptance) {
  if (shape.size() > 0) return;
  throw_usage(cat("acceptance-vector: all of its ", acceptance.size(),
                  " entries are 0, so that no tree pays; use policy none"));
}

const char* planned_for(const GenerateOptions& options) {
  if (!options.tree.empty()) return "its grow map's acceptance vector";
  return options.acceptance_vector.empty()
             ? "the shipped pair's acceptance vector at temperature 0.8, rejection"
             : "the acceptance vector given";
}

// Kept: large trees take milliseconds, and a program's requests, or the cells of a study, come back
// to the same few.
GrowMap sequoia_map(std::vector<double> acceptance, std::int32_t size, std::int32_t depth) {
  using Key = std::tuple<std::vector<double>, std::int32_t, std::int32_t>;
  static std::mutex mutex;
  static std::map<Key, GrowMap> planned;
  const std::lock_guard lock(mutex);
  if (acceptance.empty()) acceptance.assign(usual_acceptance.begin(), usual_acceptance.end());
  const Key key{std::move(acceptance), size, depth};
  const auto known = planned.find(key);
  if (known != planned.end()) return known->second;
  const GrowMap map = plan_sequoia(std::get<0>(key), {size, depth});
  if (planned.size() == most_kept_maps) planned.clear();
  return planned[key] = map;
}

}  // namespace

Acceptance settled_acceptance(const GenerateOptions& options) {
  if (options.acceptance != Acceptance::automatic) return options.acceptance;
  return options.temperature > 0.0 && needs_any_tree_exact(options.policy) ? Acceptance::coupled
                                                                           : Acceptance::rejection;
}

ChildDraw child_draw(const GenerateOptions& options) {
  if (options.temperature == 0.0) {
    return options.sampled_children ? ChildDraw::sampled : ChildDraw::top;
  }
  return settled_acceptance(options) == Acceptance::coupled ? ChildDraw::coupled
                                                            : ChildDraw::sampled;
}

void check_tree_options(const GenerateOptions& options) {
  if (options.policy == Policy::none) return;
  const bool has_tree = !options.tree.empty(), has_widths = !options.widths.empty();
  check_belongs(options, PolicyOption::threshold, options.threshold != 0.0);
  check_belongs(options, PolicyOption::widths, has_widths);
  check_belongs(options, PolicyOption::tree, has_tree);
  check_belongs(options, PolicyOption::tree_depth, options.tree_depth != 0);
  check_belongs(options, PolicyOption::custom_policy, !options.custom_policy.empty());
  if (options.policy == Policy::custom) require_registered(options.custom_policy);
  check_belongs(options, PolicyOption::beam_width, options.beam_width != 0);
  check_belongs(options, PolicyOption::plain_values, options.plain_values);
  check_belongs(options, PolicyOption::acceptance_vector, !options.acceptance_vector.empty());
  try {
    check_acceptance_vector(options.acceptance_vector);
  } catch (const Error& error) {
    throw_usage(cat("acceptance-vector: ", error.what()));
  }
  if (has_tree && !options.acceptance_vector.empty()) {
    throw_usage("acceptance-vector: a grow map brings its own; leave one of the two out");
  }
  if (options.plain_values && options.policy == Policy::dyspec && options.tree_size == 0) {
    throw_usage(
        "plain-values: automatic sizes of policy dyspec need learned acceptance; give a "
        "tree-size, or leave it out");
  }
  check_count("tree-depth", options.tree_depth);
  check_count("beam-width", options.beam_width);
  check_widths(options);
  if (options.policy == Policy::static_tree && !has_tree) {
    throw_usage(R"(tree: policy static needs one; name a JSON file like {"paths": [[0], [0, 0]]})");
  }
  if ((has_tree || has_widths) && (options.tree_size != 0 || options.tree_depth != 0)) {
    throw_usage(cat(options.tree_size != 0 ? "tree-size " : "tree-depth ",
                    options.tree_size != 0 ? options.tree_size : options.tree_depth, ": the ",
                    has_tree ? "tree file says" : "widths say",
                    " what the tree is; leave one of the two out"));
  }
  if (needs_any_tree_exact(options.policy)) {
    require_any_tree_exact(cat("policy ", name_of(options.policy)), child_draw(options));
  }
}

TreePlan plan_trees(const GenerateOptions& options, std::int32_t most) {
  TreePlan plan;
  plan.size = options.tree_size;
  const auto usual = [&](std::int32_t size) {
    return options.tree_size > 0 ? options.tree_size : std::min(size, most);
  };
  switch (options.policy) {
    case Policy::static_tree:
    case Policy::sequoia:
      if (!options.tree.empty()) {
        plan.map = read_map(options);
      } else {
        plan.map = sequoia_map(options.acceptance_vector, usual(sequoia_size),
                               options.tree_depth > 0 ? options.tree_depth : sequoia_depth);
        require_some(plan.map.shape, options.acceptance_vector);
      }
      if (options.policy == Policy::sequoia) plan.planned_for = planned_for(options);
      plan.size = plan.map.shape.size();
      check_fits(options.tree.string(), plan.size, most);
      break;
    case Policy::specinfer:
      plan.widths =
          options.widths.empty() ? specinfer_widths(usual(specinfer_size)) : options.widths;
      check_fits(cat("widths ", text_of(plan.widths)), nodes_of(plan.widths), most);
      plan.size = static_cast<std::int32_t>(nodes_of(plan.widths));
      break;
    case Policy::expand_rerank:
      plan.size = usual(expand_rerank_size);
      break;
    case Policy::custom:
      plan.size = usual(custom_size);
      break;
    case Policy::dyspec:
    case Policy::dyspec_threshold:
    case Policy::chain:
    case Policy::none:
      break;
  }
  return plan;
}

std::unique_ptr<DraftPolicy> make_policy(const GenerateOptions& options, const TreePlan& plan,
                                         AutoSize* auto_size,
                                         const AcceptanceCalibration* calibration) {
  const ChildDraw draw = child_draw(options);
  if (auto_size != nullptr) calibration = &auto_size->calibration();
  if (options.plain_values) calibration = nullptr;
  const bool any_tree = calibration != nullptr && draw != ChildDraw::sampled;
  switch (options.policy) {
    case Policy::dyspec:
      return make_dyspec_policy({calibration, auto_size, any_tree});
    case Policy::dyspec_threshold:
      return make_dyspec_policy({calibration, nullptr, any_tree});
    case Policy::chain:
      return auto_size == nullptr ? make_chain_policy()
                                  : make_chain_policy({calibration, auto_size});
    case Policy::static_tree:
      return make_static_policy(plan.map.shape);
    case Policy::specinfer:
      return make_specinfer_policy(plan.widths);
    case Policy::sequoia:
      return make_sequoia_policy(plan.map);
    case Policy::expand_rerank: {
      ExpandRerankOptions expansion;
      if (options.beam_width > 0) expansion.beam_width = options.beam_width;
      if (options.tree_depth > 0) expansion.depth = options.tree_depth;
      return make_expand_rerank_policy(expansion, draw);
    }
    case Policy::custom:
      return make_registered_policy(options.custom_policy, draw);
    case Policy::none:
      break;
  }
  return nullptr;
}

}  // namespace coppice
