#include "engine/policy_options.h"

#include <array>
#include <cstddef>

#include "base/error.h"
#include "drafting/sequoia.h"
#include "drafting/static_tree.h"
#include "engine/check_speculation.h"
#include "engine/joined_names.h"
#include "engine/open_sequence.h"

namespace coppice {
namespace {

using enum PolicyOption;

constexpr std::uint32_t bit(PolicyOption option) { return 1u << static_cast<unsigned>(option); }

template <typename... Options>
constexpr std::uint32_t set(Options... options) {
  return (0u | ... | bit(options));
}

struct PolicyFacts {
  const char* name;
  std::uint32_t options = 0;  ///< that it takes
};

/// In the order of the enumeration.
constexpr std::array facts = {
    PolicyFacts{"dyspec", set(plain_values, lookup)},
    PolicyFacts{"dyspec-threshold", set(threshold, plain_values, lookup)},
    PolicyFacts{"chain", set(lookup)},
    PolicyFacts{"static", set(tree)},
    PolicyFacts{"specinfer", set(widths)},
    PolicyFacts{"sequoia", set(tree, tree_depth, acceptance_vector)},
    PolicyFacts{"expand-rerank", set(tree_depth, beam_width)},
    PolicyFacts{"none"},
};

const char* name_of_kind(const Plain&) { return name_of(Policy::none); }
const char* name_of_kind(const Dyspec&) { return name_of(Policy::dyspec); }
const char* name_of_kind(const DyspecThreshold&) { return name_of(Policy::dyspec_threshold); }
const char* name_of_kind(const Chain&) { return name_of(Policy::chain); }
const char* name_of_kind(const StaticTree&) { return name_of(Policy::static_tree); }
const char* name_of_kind(const SpecInfer&) { return name_of(Policy::specinfer); }
const char* name_of_kind(const SpecInferWidths&) { return name_of(Policy::specinfer); }
const char* name_of_kind(const Sequoia&) { return name_of(Policy::sequoia); }
const char* name_of_kind(const SequoiaTree&) { return name_of(Policy::sequoia); }
const char* name_of_kind(const ExpandRerank&) { return name_of(Policy::expand_rerank); }
const std::string& name_of_kind(const Custom& custom) { return custom.name; }

void check_belongs(const PolicyOptions& options, PolicyOption option, bool given) {
  if (!given || takes(options.policy, option)) return;
  throw_usage(cat(name_of(option), ": it belongs to policy ", names_of(takers_of(option), " or "),
                  ", not to ", name_of(options.policy), "; leave it out, or change the policy"));
}

void check_options(const PolicyOptions& options) {
  const bool has_tree = !options.tree.empty(), has_widths = !options.widths.empty();
  check_belongs(options, threshold, options.threshold != 0.0);
  check_belongs(options, widths, has_widths);
  check_belongs(options, tree, has_tree);
  check_belongs(options, tree_depth, options.tree_depth != 0);
  check_belongs(options, beam_width, options.beam_width != 0);
  check_belongs(options, plain_values, options.plain_values);
  check_belongs(options, acceptance_vector, !options.acceptance_vector.empty());
  check_belongs(options, lookup, options.looks_up);
  if (has_tree && !options.acceptance_vector.empty()) {
    throw_usage("acceptance-vector: a grow map brings its own; leave one of the two out");
  }
  if (options.policy == Policy::static_tree && !has_tree) {
    throw_usage(R"(tree: policy static needs one; name a JSON file like {"paths": [[0], [0, 0]]})");
  }
  if ((has_tree || has_widths) && (options.tree_size != 0 || options.tree_depth != 0)) {
    throw_usage(cat(options.tree_size != 0 ? "tree-size " : "tree-depth ",
                    options.tree_size != 0 ? options.tree_size : options.tree_depth, ": the ",
                    has_tree ? "tree file says" : "widths say",
                    " what the tree is; leave one of the two out"));
  }
}

// A shape that some engine can grow.
std::vector<RankPath> paths_of(const TreeShape& shape, const std::filesystem::path& file) {
  if (shape.size() == 0) {
    throw_failure(
        cat(file.string(), ": its tree is empty; list at least one path, or use policy none"));
  }
  if (shape.size() > largest_tree_size) {
    throw_usage(cat(file.string(), ": a tree of ", shape.size(),
                    " draft tokens, of which an engine takes at most ", largest_tree_size,
                    " (max_tree_size); use a smaller tree"));
  }
  return shape.paths();
}

}  // namespace

const char* name_of(Policy policy) { return facts[static_cast<std::size_t>(policy)].name; }

std::string name_of(const Speculation& speculation) {
  return std::visit([](const auto& policy) -> std::string { return name_of_kind(policy); },
                    speculation);
}

const char* name_of(PolicyOption option) {
  constexpr std::array names = {"threshold",         "widths",     "tree",
                                "tree-depth",        "beam-width", "plain-values",
                                "acceptance-vector", "lookup"};
  return names[static_cast<std::size_t>(option)];
}

bool takes(Policy policy, PolicyOption option) {
  return (facts[static_cast<std::size_t>(policy)].options & bit(option)) != 0;
}

std::vector<Policy> takers_of(PolicyOption option) {
  std::vector<Policy> takers;
  for (const Policy policy : all_policies()) {
    if (takes(policy, option)) takers.push_back(policy);
  }
  return takers;
}

std::span<const Policy> all_policies() {
  static constexpr auto all = [] {
    std::array<Policy, facts.size()> policies{};
    for (std::size_t i = 0; i < policies.size(); ++i) policies[i] = static_cast<Policy>(i);
    return policies;
  }();
  return all;
}

std::string names_of(std::span<const Policy> policies, const char* between) {
  return joined_names(policies, between);
}

Speculation speculation_of(const PolicyOptions& options) {
  const std::int32_t size = options.tree_size;
  if (options.policy == Policy::none) return Plain{};
  check_options(options);
  switch (options.policy) {
    case Policy::dyspec:
      return Dyspec{size, options.plain_values};
    case Policy::dyspec_threshold:
      return DyspecThreshold{options.threshold, size, options.plain_values};
    case Policy::chain:
      return Chain{size};
    case Policy::static_tree:
      return read_static_tree(options.tree);
    case Policy::specinfer:
      if (!options.widths.empty()) return SpecInferWidths{options.widths};
      return SpecInfer{size};
    case Policy::sequoia:
      if (!options.tree.empty()) return read_sequoia_tree(options.tree);
      return Sequoia{size, options.tree_depth, options.acceptance_vector};
    case Policy::expand_rerank:
      return ExpandRerank{size, options.tree_depth, options.beam_width};
    case Policy::none:
      break;
  }
  return Plain{};
}

Speculation speculation_of(Policy policy, std::int32_t tree_size) {
  PolicyOptions options;
  options.policy = policy;
  options.tree_size = tree_size;
  return speculation_of(options);
}

StaticTree read_static_tree(const std::filesystem::path& file) {
  return in_words("static tree", [&] { return StaticTree{paths_of(read_tree_shape(file), file)}; });
}

SequoiaTree read_sequoia_tree(const std::filesystem::path& file) {
  return in_words("sequoia tree",
                  [&] { return SequoiaTree{paths_of(read_grow_map(file).shape, file)}; });
}

}  // namespace coppice
