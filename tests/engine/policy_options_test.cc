// Policies as command lines say them: what becomes of names and loose options, and what is refused.
#include "engine/policy_options.h"

#include <gtest/gtest.h>

#include <fstream>
#include <functional>
#include <set>

#include "base/error.h"
#include "engine/check_speculation.h"
#include "reference/files.h"

namespace coppice {
namespace {

/// What is said of these options of `policy`; empty where nothing is refused.
std::string refusal(Policy policy, const std::function<void(PolicyOptions&)>& change) {
  PolicyOptions options;
  options.policy = policy;
  change(options);
  try {
    speculation_of(options);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage) << error.what();
    return error.what();
  }
  return "";
}

TEST(PolicyOptions, EveryNameIsItsSpeculations) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() / "tree.json") << R"({"paths": [[0], [1], [0, 0]]})";
  std::set<std::string> names;
  for (const Policy policy : all_policies()) {
    PolicyOptions options;
    options.policy = policy;
    if (policy == Policy::static_tree) options.tree = folder.path() / "tree.json";
    const Speculation speculation = speculation_of(options);
    EXPECT_EQ(name_of(speculation), name_of(policy));
    EXPECT_EQ(asked_size(speculation), 0);
    EXPECT_EQ(given_size(speculation), policy == Policy::static_tree ? 3 : 0);
    names.insert(name_of(speculation));
  }
  EXPECT_EQ(names.size(), all_policies().size());
  EXPECT_EQ(names_of(takers_of(PolicyOption::tree), " or "), "static or sequoia");
}

TEST(PolicyOptions, SaySizesAndShapes) {
  for (const Policy policy : {Policy::dyspec, Policy::dyspec_threshold, Policy::chain,
                              Policy::specinfer, Policy::sequoia, Policy::expand_rerank}) {
    EXPECT_EQ(asked_size(speculation_of(policy, 7)), 7) << name_of(policy);
  }
  PolicyOptions options;
  options.policy = Policy::specinfer;
  options.widths = {3, 2};
  EXPECT_EQ(given_size(speculation_of(options)), 9);
  options = {};
  options.policy = Policy::sequoia;
  options.tree_size = 12;
  options.tree_depth = 3;
  options.acceptance_vector = {0.5, 0.2};
  const auto sequoia = std::get<Sequoia>(speculation_of(options));
  EXPECT_EQ(sequoia.size, 12);
  EXPECT_EQ(sequoia.depth, 3);
  EXPECT_EQ(sequoia.acceptance, (std::vector<double>{0.5, 0.2}));
  options = {};
  options.policy = Policy::dyspec_threshold;
  options.threshold = 0.1;
  options.plain_values = true;
  const auto above = std::get<DyspecThreshold>(speculation_of(options));
  EXPECT_EQ(above.threshold, 0.1);
  EXPECT_TRUE(above.plain_values);
}

TEST(PolicyOptions, OfOtherPoliciesAreRefused) {
  using enum Policy;
  const auto expect = [](Policy policy, const std::function<void(PolicyOptions&)>& change,
                         const std::string& says) {
    EXPECT_NE(refusal(policy, change).find(says), std::string::npos) << refusal(policy, change);
    EXPECT_EQ(refusal(none, change), "") << "policy none ignores them all";
  };
  for (const Policy policy : {dyspec, chain, sequoia, expand_rerank, static_tree}) {
    expect(
        policy,
        [](auto& o) {
          o.widths = {2, 2};
        },
        "widths: it belongs to policy specinfer, not to ");
  }
  expect(
      chain, [](auto& o) { o.tree = "tree.json"; },
      "tree: it belongs to policy static or sequoia, not to chain");
  expect(
      specinfer, [](auto& o) { o.tree_depth = 3; },
      "tree-depth: it belongs to policy sequoia or expand-rerank, not to specinfer");
  expect(
      sequoia, [](auto& o) { o.beam_width = 3; }, "beam-width: it");
  expect(
      specinfer, [](auto& o) { o.threshold = 0.1; },
      "threshold: it belongs to policy dyspec-threshold, not to specinfer");
  expect(
      chain, [](auto& o) { o.plain_values = true; },
      "plain-values: it belongs to policy dyspec or dyspec-threshold, not to chain");
  expect(
      chain, [](auto& o) { o.acceptance_vector = {0.5}; },
      "acceptance-vector: it belongs to policy sequoia, not to chain");
}

TEST(PolicyOptions, ThatContradictEachOtherAreRefused) {
  using enum Policy;
  const auto expect = [](Policy policy, const std::function<void(PolicyOptions&)>& change,
                         const std::string& says) {
    EXPECT_NE(refusal(policy, change).find(says), std::string::npos) << refusal(policy, change);
  };
  expect(
      specinfer,
      [](auto& o) {
        o.widths = {2, 2};
        o.tree_size = 6;
      },
      "tree-size 6: the widths say");
  expect(
      static_tree,
      [](auto& o) {
        o.tree = "tree.json";
        o.tree_size = 3;
      },
      "tree-size 3: the tree file says");
  expect(
      sequoia,
      [](auto& o) {
        o.tree = "map.json";
        o.tree_depth = 2;
      },
      "tree-depth 2: the tree file says");
  expect(
      sequoia,
      [](auto& o) {
        o.tree = "map.json";
        o.acceptance_vector = {0.5};
      },
      "acceptance-vector: a grow map brings its own");
  expect(
      static_tree, [](auto&) {}, "tree: policy static needs one");
}

}  // namespace
}  // namespace coppice
