// Automatic sizes do not change the law of the output.
#include <gtest/gtest.h>

#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <random>
#include <vector>

#include "drafting/dyspec_auto.h"
#include "reference/statistics.h"
#include "reference/tabular_model.h"

namespace coppice {
namespace {

using testing::Fit;
using testing::ModelPair;
using testing::Setting;
using testing::TabularGenerator;

// Prices under which trees of a few nodes pay, and none of more than nine.
class FixedPrices final : public GrowthEconomics {
 public:
  double node_cost(std::int32_t size) const override {
    return size < 9 ? 0.05 + 0.01 * size : std::numeric_limits<double>::infinity();
  }
  double pass_cost(std::int32_t rows) const override { return 0.05 + 0.01 * rows; }
  double verify_cost(std::int32_t size) const override { return 0.05 * size + 0.005 * size * size; }
};

// Acceptance that rises with the share of the draft's mass and falls with rank, so that trees have
// breadth and depth.
AcceptanceCalibration learned(ChildDraw draw) {
  AcceptanceCalibration calibration(draw);
  std::mt19937_64 random(3);
  const auto unit = [&] { return static_cast<double>(random() >> 11) * 0x1p-53; };
  for (int i = 0; i < 400; ++i) {
    const double share = unit();
    const auto rank = static_cast<std::int32_t>(random() % 4);
    const auto depth = static_cast<std::int32_t>(1 + random() % 5);
    calibration.observe(rank, depth, share, unit() < std::sqrt(share) * (rank == 0 ? 0.95 : 0.7));
  }
  calibration.update();
  return calibration;
}

TEST(AutomaticSize, FitsTheTargetUnderRejection) {
  const AcceptanceCalibration calibration = learned(ChildDraw::sampled);
  const FixedPrices prices;
  DyspecAutoPolicy policy(prices, calibration, false);
  const auto rule = make_rejection_rule();
  std::uint64_t seed = 9000;
  for (const ModelPair& pair : testing::model_pairs()) {
    Setting setting;
    setting.limits = testing::fixed(12);
    TabularGenerator generator(pair, setting);
    const Fit fit = testing::compare(generator.count_threes(policy, *rule, ++seed, 60000),
                                     testing::law_of_three(pair.target, {1.0}));
    EXPECT_TRUE(fit.fits) << pair.name << ": " << fit.text();
  }
}

// The same policy in hindsight would bias rejection: that the check notices shows its power.
TEST(AutomaticSize, HindsightUnderRejectionIsCaught) {
  const AcceptanceCalibration calibration = learned(ChildDraw::sampled);
  const FixedPrices prices;
  DyspecAutoPolicy policy(prices, calibration, true);
  const auto rule = make_rejection_rule();
  int caught = 0;
  Fit worst;
  for (const ModelPair& pair : testing::model_pairs()) {
    Setting setting;
    setting.limits = testing::fixed(12);
    TabularGenerator generator(pair, setting);
    const Fit fit = testing::compare(generator.count_threes(policy, *rule, 5, 20000),
                                     testing::law_of_three(pair.target, {1.0}));
    caught += fit.fits ? 0 : 1;
    if (fit.chi_square > worst.chi_square) worst = fit;
  }
  std::cout << "hindsight under rejection: caught on " << caught << " pairs; " << worst.text()
            << "\n";
  EXPECT_GT(caught, 0);
}

// Checks every tree it grows.
class ValidatingPolicy final : public DraftPolicy {
 public:
  ValidatingPolicy(DraftPolicy& policy, std::int32_t vocab) : policy_(policy), vocab_(vocab) {}
  std::string name() const override { return policy_.name(); }
  std::int32_t arena_nodes(const GrowthLimits& limits) const override {
    return policy_.arena_nodes(limits);
  }
  void grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) override {
    policy_.grow(source, limits, tree);
    tree.validate(vocab_);
  }

 private:
  DraftPolicy& policy_;
  std::int32_t vocab_;
};

TEST(AutomaticSize, InHindsightRepeatsThePlainTextWithValidTrees) {
  const FixedPrices prices;
  const AcceptanceCalibration calibration = learned(ChildDraw::top);
  DyspecAutoPolicy policy(prices, calibration, true);
  const auto none = make_dyspec_policy();
  for (const ModelPair& pair : testing::model_pairs()) {
    ValidatingPolicy validating(policy, pair.target.vocab);
    for (const ChildDraw draw : {ChildDraw::coupled, ChildDraw::top}) {
      Setting setting;
      setting.limits = testing::fixed(12);
      setting.draw = draw;
      Setting plain;
      plain.limits = testing::fixed(0);
      if (draw == ChildDraw::top) setting.target_params = plain.target_params = {0.0};
      TabularGenerator generator(pair, setting), reference(pair, plain);
      const auto rule_of = [&](TabularGenerator& of) {
        return draw == ChildDraw::top ? make_greedy_rule() : make_coupled_rule(of.noise());
      };
      const auto rule = rule_of(generator), plain_rule = rule_of(reference);
      for (std::uint64_t sequence = 0; sequence < 50; ++sequence) {
        ASSERT_EQ(generator.generate(validating, *rule, 1, sequence, 30),
                  reference.generate(*none, *plain_rule, 1, sequence, 30))
            << pair.name;
      }
    }
  }
}

}  // namespace
}  // namespace coppice
