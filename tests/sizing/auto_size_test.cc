#include "sizing/auto_size.h"

#include <gtest/gtest.h>

#include <vector>

namespace coppice {
namespace {

PassCosts steps(double base, double slope) {
  std::vector<PassCosts::Point> points;
  for (const int rows : {1, 2, 4, 8, 16, 32, 64}) {
    points.push_back({rows, base + slope * rows, base + 2 * slope * rows});
  }
  return PassCosts(0, 100, points);
}

TokenTree chain_of(int length, float prob) {
  TokenTree tree;
  tree.reset(0);
  for (int i = 0; i < length; ++i) tree.add(i, i, 0, prob, tree.path_prob.back());
  return tree;
}

TEST(AutoSize, StopsSpeculatingWhereItNeverPaysAndTriesAgainRarely) {
  const CostTable costs{"x", steps(1e-3, 1e-5), steps(3e-4, 1e-6)};
  AutoSize size(costs, ChildDraw::sampled, 64);
  int speculated = 0;
  constexpr int steps_run = 1000;
  for (int i = 0; i < steps_run; ++i) {
    if (size.begin_step(50)) {
      ++speculated;
      size.record(chain_of(3, 0.9f), {}, 3);  // confident and always wrong
    } else {
      size.record_plain();
    }
  }
  EXPECT_LE(speculated, 30);
  EXPECT_GE(speculated, 8) << "it must go on trying";
  EXPECT_EQ(size.chain_length(32), 1);
}

TEST(AutoSize, FollowsTheClockWhereItIsToldOf) {
  // By the table a pass of the draft costs a third of the target's; by the clock a tenth.
  const CostTable costs{"x", steps(1e-3, 1e-6), steps(3e-4, 1e-6)};
  AutoSize size(costs, ChildDraw::sampled, 64);
  const TokenTree tree = chain_of(2, 0.9f);
  ASSERT_TRUE(size.begin_step(50));
  const std::int32_t before = size.chain_length(32);
  const double pass_before = size.pass_cost(1) / size.verify_cost(2);
  for (int i = 0; i < 60; ++i) {
    ASSERT_TRUE(size.begin_step(50));
    size.observe(3, 1e-3, 2, 2e-4);
    size.record(tree, std::vector<std::int32_t>{1, 2}, 2);
  }
  ASSERT_TRUE(size.begin_step(50));
  EXPECT_LT(size.pass_cost(1) / size.verify_cost(2), 0.5 * pass_before);
  EXPECT_GT(size.chain_length(32), before);
  // One interrupted pass changes little.
  const double calm = size.verify_cost(2);
  size.observe(3, 10.0, 0, 0.0);
  EXPECT_LT(size.verify_cost(2), 1.15 * calm);
}

TEST(AutoSize, ComesBackWhenTheDraftBecomesGood) {
  const CostTable costs{"x", steps(1e-3, 1e-5), steps(5e-5, 1e-6)};
  AutoSize size(costs, ChildDraw::sampled, 64);
  const TokenTree tree = chain_of(3, 0.9f);
  const std::vector<std::int32_t> path = {1, 2, 3};
  for (int i = 0; i < 200; ++i) {
    if (size.begin_step(50)) {
      size.record(tree, {}, 3);
    } else {
      size.record_plain();
    }
  }
  int speculated = 0;
  for (int i = 0; i < 200; ++i) {
    if (size.begin_step(50)) {
      ++speculated;
      size.record(tree, path, 3);
    } else {
      size.record_plain();
    }
  }
  EXPECT_GE(speculated, 100);
  EXPECT_GE(size.chain_length(32), 2);
}

}  // namespace
}  // namespace coppice
