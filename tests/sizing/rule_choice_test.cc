#include "sizing/rule_choice.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "sizing/constants.h"

namespace coppice {
namespace {

using C = SizingConstants;

/// A verify pass of n rows takes 1 + slope (n - 1) milliseconds.
CostTable costs_of(double slope) {
  CostTable costs;
  const double most = 1e-3 * (1.0 + slope * 256);
  costs.target = PassCosts(1, 100, {{1, 1e-3, 1e-3}, {257, most, most}});
  costs.draft = PassCosts(1, 100, {{1, 1e-4, 1e-4}, {257, 1e-4, 1e-4}});
  return costs;
}

TEST(RuleChoice, CostsSayWhatIsUsual) {
  EXPECT_EQ(RuleChoice::usual_nodes(costs_of(0.25), 256), 2);
  EXPECT_EQ(RuleChoice::usual_nodes(costs_of(0.501), 256), 1);
  EXPECT_EQ(RuleChoice::usual_nodes(costs_of(0.01), 256), 50);
  EXPECT_EQ(RuleChoice::usual_nodes(costs_of(0.0), 256), 256);
  EXPECT_EQ(RuleChoice().choose(RuleChoice::usual_nodes(costs_of(0.25), 256)),
            Acceptance::rejection);
  EXPECT_EQ(RuleChoice().choose(RuleChoice::usual_nodes(costs_of(0.01), 256)), Acceptance::coupled);
  EXPECT_LT(RuleChoice::usual_gain(0.0), 0.0);
  EXPECT_EQ(RuleChoice::usual_gain(0.0), RuleChoice::usual_gain(1.0));
}

// Trees turn out smaller than costs made believe.
TEST(RuleChoice, FollowsTheSizeOfTrees) {
  RuleChoice rules;
  EXPECT_EQ(rules.choose(60.0), Acceptance::coupled);
  for (int text = 0; text < 3; ++text) rules.record(Acceptance::coupled, 2.0, 2.0);
  EXPECT_EQ(rules.choose(60.0), Acceptance::rejection);
}

struct Trial {
  double share_of_best;  ///< of all texts
  Acceptance last;       ///< of the last texts, most
};

/// `texts` whose rates spread as texts do, coupled being faster by `gain`.
Trial trial(double gain, double nodes, int texts, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<double> spread(0.0, C::text_spread);
  RuleChoice rules;
  const Acceptance best = gain > 0.0 ? Acceptance::coupled : Acceptance::rejection;
  int right = 0, late_coupled = 0;
  for (int text = 0; text < texts; ++text) {
    const Acceptance rule = rules.choose(nodes);
    right += static_cast<int>(rule == best);
    if (text >= texts / 2) late_coupled += static_cast<int>(rule == Acceptance::coupled);
    const double mean = rule == Acceptance::coupled ? gain : 0.0;
    rules.record(rule, 3.0 * std::exp(mean + spread(random)), nodes);
  }
  return {static_cast<double>(right) / texts,
          late_coupled > texts / 4 ? Acceptance::coupled : Acceptance::rejection};
}

TEST(RuleChoice, ATrueStartIsKeptAndExploringIsRare) {
  int kept = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    const Trial small = trial(RuleChoice::usual_gain(2.0), 2.0, 200, seed);
    const Trial large = trial(RuleChoice::usual_gain(64.0), 64.0, 200, seed + 1000);
    kept +=
        static_cast<int>(small.share_of_best > 0.9) + static_cast<int>(large.share_of_best > 0.9);
  }
  EXPECT_GE(kept, 95);
}

// A pair for which the usual is wrong: its own texts say so in the end.
TEST(RuleChoice, AFalseStartIsFoundOut) {
  int found = 0;
  for (unsigned seed = 0; seed < 50; ++seed) {
    found += static_cast<int>(trial(0.3, 2.0, 400, seed).last == Acceptance::coupled);
    found += static_cast<int>(trial(-0.3, 64.0, 400, seed + 1000).last == Acceptance::rejection);
  }
  EXPECT_GE(found, 95);
}

TEST(RuleChoice, NeverExploresWhatIsSure) {
  RuleChoice rules;
  for (int text = 0; text < 200; ++text) {
    rules.record(Acceptance::rejection, 1.0, 64.0);
    rules.record(Acceptance::coupled, 2.0, 64.0);
  }
  for (int text = 0; text < 64; ++text) EXPECT_EQ(rules.choose(64.0), Acceptance::coupled);
}

}  // namespace
}  // namespace coppice
