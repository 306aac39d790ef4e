// Policies as command lines and result files say them: a name, and options beside it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "coppice.h"

namespace coppice {

enum class Policy {
  dyspec,
  dyspec_threshold,
  chain,
  static_tree,
  specinfer,
  sequoia,
  expand_rerank,
  none,
};

const char* name_of(Policy policy);

/// All of them.
std::span<const Policy> all_policies();

/// Their names, with `between` between them.
std::string names_of(std::span<const Policy> policies, const char* between = ", ");

/// Options that some policies take and the others refuse.
enum class PolicyOption {
  threshold,
  widths,
  tree,
  tree_depth,
  beam_width,
  plain_values,
  acceptance_vector,
  lookup,
};

/// As command lines and messages call it: "tree-depth".
const char* name_of(PolicyOption option);

bool takes(Policy policy, PolicyOption option);
/// In the order of the enumeration.
std::vector<Policy> takers_of(PolicyOption option);

struct PolicyOptions {
  Policy policy = Policy::none;
  /// Draft tokens a step; chain: its length; dyspec_threshold: the cap; 0: automatic. Must be 0
  /// with `widths` or `tree`, which say it.
  std::int32_t tree_size = 0;
  double threshold = 0.0;
  std::int32_t tree_depth = 0;
  std::int32_t beam_width = 0;
  bool plain_values = false;
  std::vector<std::int32_t> widths;
  std::filesystem::path tree;  ///< static_tree, which needs it, and sequoia
  std::vector<double> acceptance_vector;
  /// What generate() is asked beside the policy, where one name says both ("dyspec+lookup").
  bool looks_up = false;
  bool drafts = true;
};

/// What they say, not yet validated; reads the tree file. Throws Error(usage) for an option of
/// another policy (only none ignores them all) and for options that contradict each other,
/// Error(failure) as read_static_tree() does.
Speculation speculation_of(const PolicyOptions& options);

/// The same of a policy and its tree_size alone.
Speculation speculation_of(Policy policy, std::int32_t tree_size);

}  // namespace coppice
