#include "engine/policy_table.h"

#include <array>
#include <cstddef>
#include <cstdint>

namespace coppice {
namespace {

using enum PolicyOption;

constexpr std::uint32_t bit(PolicyOption option) { return 1u << static_cast<unsigned>(option); }

template <typename... Options>
constexpr std::uint32_t set(Options... options) {
  return (0u | ... | bit(options));
}

enum class AutomaticSize { usual, by_costs };
using enum AutomaticSize;
enum class KeepsChildren { as_drawn, by_probability };
using enum KeepsChildren;

struct PolicyFacts {
  Policy policy;
  const char* name;
  AutomaticSize automatic_size = usual;
  std::uint32_t options = 0;  ///< that it takes
  KeepsChildren keeps = as_drawn;
};

constexpr std::array table = {
    PolicyFacts{Policy::dyspec, "dyspec", by_costs, set(plain_values)},
    PolicyFacts{Policy::dyspec_threshold, "dyspec-threshold", by_costs,
                set(threshold, plain_values)},
    PolicyFacts{Policy::chain, "chain", by_costs},
    PolicyFacts{Policy::static_tree, "static", usual, set(tree)},
    PolicyFacts{Policy::specinfer, "specinfer", usual, set(widths)},
    PolicyFacts{Policy::sequoia, "sequoia", usual, set(tree, tree_depth, acceptance_vector)},
    PolicyFacts{Policy::expand_rerank, "expand-rerank", usual, set(tree_depth, beam_width),
                by_probability},
    PolicyFacts{Policy::custom, "custom", usual, set(tree_depth, custom_policy)},
    PolicyFacts{Policy::none, "none"},
};

constexpr bool in_the_enumeration_s_order() {
  for (std::size_t i = 0; i < table.size(); ++i) {
    if (static_cast<std::size_t>(table[i].policy) != i) return false;
  }
  return true;
}
static_assert(in_the_enumeration_s_order(), "facts are looked up by the policy's number");
static_assert(table.back().policy == Policy::none, "every policy has a row");

const PolicyFacts& facts_of(Policy policy) { return table[static_cast<std::size_t>(policy)]; }

}  // namespace

const char* name_of(Policy policy) { return facts_of(policy).name; }

const char* name_of(PolicyOption option) {
  constexpr std::array names = {"threshold",     "widths",     "tree",         "tree-depth",
                                "custom-policy", "beam-width", "plain-values", "acceptance-vector"};
  return names[static_cast<std::size_t>(option)];
}

bool takes(Policy policy, PolicyOption option) {
  return (facts_of(policy).options & bit(option)) != 0;
}

std::vector<Policy> takers_of(PolicyOption option) {
  std::vector<Policy> takers;
  for (const PolicyFacts& facts : table) {
    if (takes(facts.policy, option)) takers.push_back(facts.policy);
  }
  return takers;
}

bool sized_by_costs(Policy policy) { return facts_of(policy).automatic_size == by_costs; }

bool needs_any_tree_exact(Policy policy) { return facts_of(policy).keeps == by_probability; }

std::span<const Policy> named_policies() {
  static constexpr auto named = [] {
    std::array<Policy, table.size() - 1> all{};
    std::size_t next = 0;
    for (const PolicyFacts& facts : table) {
      if (facts.policy != Policy::custom) all[next++] = facts.policy;
    }
    return all;
  }();
  return named;
}

std::string names_of(std::span<const Policy> policies, const char* between) {
  std::string names;
  for (const Policy policy : policies) {
    if (!names.empty()) names += between;
    names += name_of(policy);
  }
  return names;
}

}  // namespace coppice
