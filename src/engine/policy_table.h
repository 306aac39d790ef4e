// What coppice's own policies are called, and what each of them takes: the one place that says so.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "coppice.h"

namespace coppice {

/// Members of GenerateOptions that some policies take and the others refuse.
enum class PolicyOption {
  threshold,
  widths,
  tree,
  tree_depth,
  custom_policy,
  beam_width,
  plain_values,
  acceptance_vector,
};

/// As command lines and messages call it: "tree-depth".
const char* name_of(PolicyOption option);

bool takes(Policy policy, PolicyOption option);
/// In the order of the enumeration.
std::vector<Policy> takers_of(PolicyOption option);

/// Whether automatic sizes are chosen from costs; else they are the policy's usual size, or what a
/// tree or widths say.
bool sized_by_costs(Policy policy);

/// Whether it keeps children for their probability, so that it is exact only where any tree is
/// (drafting/any_tree.h): not under sampled rejection.
bool needs_any_tree_exact(Policy policy);

/// All that are chosen by a name of coppice's own: not custom, whose name is the user's.
std::span<const Policy> named_policies();

/// Their names, with `between` between them.
std::string names_of(std::span<const Policy> policies, const char* between = ", ");

}  // namespace coppice
