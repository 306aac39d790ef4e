// The planned size against all sizes and depths tried one by one.
#include "sizing/size_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

namespace coppice {
namespace {

AcceptanceCalibration learned(std::uint64_t seed) {
  AcceptanceCalibration calibration(ChildDraw::sampled);
  std::mt19937_64 random(seed);
  for (int i = 0; i < 60; ++i) {
    const auto rank = static_cast<std::int32_t>(random() % 4);
    const auto depth = static_cast<std::int32_t>(1 + random() % 5);
    calibration.observe(rank, depth, 0.5, random() % (2 + seed % 4) != 0);
  }
  calibration.update();
  return calibration;
}

// Values of all positions down to `deepest` of at least `least`, the highest first.
std::vector<double> all_values(const AcceptanceCalibration& calibration, std::int32_t deepest,
                               double least) {
  std::vector<double> values;
  const std::function<void(double, std::int32_t)> below = [&](double parent, std::int32_t depth) {
    double reach = parent, bound = parent;
    for (std::int32_t rank = 0; depth <= deepest && rank < 8; ++rank) {
      const double value = std::min(bound, reach * calibration.position(rank, depth));
      if (value < least) return;
      values.push_back(value);
      below(value, depth + 1);
      reach -= value;
      bound = value;
    }
  };
  below(1.0, 1);
  std::sort(values.rbegin(), values.rend());
  return values;
}

// Of trees of 0 to 40 nodes, with a step after 15 nodes, 16 rows.
std::vector<double> verify_prices(double tokens, double step) {
  std::vector<double> prices;
  for (int n = 0; n <= 40; ++n) prices.push_back(tokens * (1.0 + 0.01 * n) + (n > 15 ? step : 0.0));
  return prices;
}

TEST(SizePlan, IsTheBestOfAllSizesAndDepths) {
  for (std::uint64_t seed = 0; seed < 60; ++seed) {
    const AcceptanceCalibration calibration = learned(seed);
    const double tokens = 0.5 + 0.1 * static_cast<double>(seed % 7);
    const std::vector<double> verify = verify_prices(tokens, seed % 3 == 0 ? 0.5 : 0.0);
    const std::vector<double> pass(verify.size(), 0.02 + 0.03 * static_cast<double>(seed % 4));
    SizePlan plan;
    SizePlanner().replan(calibration, {verify, pass}, plan);

    double best = -1e300;
    for (std::int32_t depth = 1; depth <= 32; ++depth) {
      const std::vector<double> values = all_values(calibration, depth, 0.01);
      double gain = 0.0;
      for (std::size_t n = 1; n < verify.size() && n <= values.size(); ++n) {
        gain += values[n - 1];
        best = std::max(best, gain - verify[n] - (depth - 1) * pass[0]);
      }
    }
    const std::vector<double> values = all_values(calibration, plan.depth, 0.01);
    const auto n = static_cast<std::size_t>(plan.nodes);
    ASSERT_LE(n, values.size());
    double net = -verify[n] - (plan.depth - 1) * pass[0];
    for (std::size_t i = 0; i < n; ++i) net += values[i];
    EXPECT_NEAR(net, best, 1e-12) << "seed " << seed << ": " << n << " nodes, depth " << plan.depth;
    EXPECT_LE(plan.price, values[n - 1]);
    if (n < values.size()) {
      EXPECT_GE(plan.price, values[n]);
    }
  }
}

TEST(SizePlan, CrossesAStepOnlyForWhatItCosts) {
  const AcceptanceCalibration calibration(ChildDraw::sampled);
  const std::vector<double> pass(41, 0.05);
  SizePlan small, large;
  SizePlanner().replan(calibration, {verify_prices(0.5, 3.0), pass}, small);
  EXPECT_LE(small.nodes, 15);
  ASSERT_EQ(small.node_prices.size(), 40u);
  for (std::size_t n = 0; n < 15; ++n) EXPECT_EQ(small.node_prices[n], small.price);
  for (std::size_t n = 15; n < 40; ++n) EXPECT_NEAR(small.node_prices[n], 3.005, 1e-12);
  SizePlanner().replan(calibration, {verify_prices(0.5, 0.0), pass}, large);
  EXPECT_GT(large.nodes, 16);
  for (const double price : large.node_prices) EXPECT_NEAR(price, large.price, 1e-12);
}

// Rows that cost nothing more are not charged what the row behind the step costs.
TEST(SizePlan, RowsOfAFullBucketAreFree) {
  const AcceptanceCalibration calibration(ChildDraw::sampled);
  std::vector<double> verify;
  for (int n = 0; n <= 40; ++n) verify.push_back(1.0 + 0.4 * ((n + 3) / 4));
  const std::vector<double> pass(verify.size(), 0.3);
  SizePlan plan;
  SizePlanner().replan(calibration, {verify, pass}, plan);
  ASSERT_EQ(plan.nodes % 4, 0);
  ASSERT_GE(plan.nodes, 4);
  const std::vector<double> values = all_values(calibration, plan.depth, 0.01);
  const auto n = static_cast<std::size_t>(plan.nodes);
  // At most the share of a step of 0.4 in four rows, or what the plan leaves out.
  EXPECT_LE(plan.price, std::max(0.1, values[n]) + 1e-12);
  EXPECT_NEAR(plan.node_prices[n], std::max(plan.price, 0.4), 1e-12);
}

TEST(SizePlan, OneNodeIsTheLeast) {
  const AcceptanceCalibration calibration(ChildDraw::sampled);
  const std::vector<double> verify = {0.0, 50.0}, pass = {1.0, 1.0};
  SizePlan plan;
  SizePlanner().replan(calibration, {verify, pass}, plan);
  EXPECT_EQ(plan.nodes, 1);
  EXPECT_EQ(plan.depth, 1);
  EXPECT_EQ(plan.node_prices.size(), 1u);
}

// From one plan to the next only depths around the last one are tried.
TEST(SizePlan, FollowsWhatIsLearned) {
  AcceptanceCalibration calibration(ChildDraw::sampled);
  const std::vector<double> verify = verify_prices(0.5, 0.5), pass(41, 0.05);
  SizePlanner planner;
  SizePlan plan;
  planner.replan(calibration, {verify, pass}, plan);
  const std::int32_t at_first = plan.depth;
  for (int i = 0; i < 200; ++i) {
    for (std::int32_t depth = 1; depth <= 6; ++depth) calibration.observe(0, depth, 0.9, true);
  }
  calibration.update();
  for (int i = 0; i < 10; ++i) planner.replan(calibration, {verify, pass}, plan);
  SizePlan anew;
  planner.replan(calibration, {verify, pass}, anew);
  EXPECT_GT(plan.depth, at_first);
  EXPECT_EQ(plan.depth, anew.depth);
  EXPECT_EQ(plan.nodes, anew.nodes);
}

}  // namespace
}  // namespace coppice
