// The check of distribution_test.cc must notice every planted fault, on one pair at least.
#include "verify/planted_faults.h"

#include <gtest/gtest.h>

#include <cctype>
#include <iostream>
#include <memory>
#include <string>
#include <vector>

#include "drafting/sequoia.h"
#include "drafting/static_tree.h"
#include "reference/statistics.h"
#include "reference/tabular_model.h"

namespace coppice {
namespace {

using testing::Fit;
using testing::ModelPair;
using testing::Setting;
using testing::TabularGenerator;

// Runs the pairs through one faulty setup; the worst fit is printed and must be a misfit, while
// the correct setup fits the same pair with the same seed. `only`: pairs with this in their name.
void expect_caught(const std::string& fault, DraftPolicy& policy, AcceptanceRule& rule,
                   DrawingFault drawing, std::int32_t size, const std::string& only = "") {
  constexpr std::int64_t texts = 60000;
  Fit worst;
  const ModelPair* worst_pair = nullptr;
  int caught = 0, pairs = 0;
  static const std::vector<ModelPair> all = testing::model_pairs();
  Setting setting;
  setting.fault = drawing;
  setting.limits = testing::fixed(size);
  for (const ModelPair& pair : all) {
    if (pair.name.find(only) == std::string::npos) continue;
    TabularGenerator generator(pair, setting);
    const Fit fit = testing::compare(generator.count_threes(policy, rule, 77, texts),
                                     testing::law_of_three(pair.target, {1.0}));
    ++pairs;
    caught += fit.fits ? 0 : 1;
    if (worst_pair == nullptr || fit.tail < worst.tail ||
        (fit.tail == worst.tail && fit.chi_square > worst.chi_square)) {
      worst = fit;
      worst_pair = &pair;
    }
  }
  std::cout << fault << ": caught on " << caught << " of " << pairs << " pairs; "
            << worst_pair->name << ": " << worst.text() << "\n";
  EXPECT_GT(caught, 0) << fault;

  setting.fault = DrawingFault::none;
  TabularGenerator generator(*worst_pair, setting);
  const auto correct_policy = make_dyspec_policy();
  const auto correct_rule = make_rejection_rule();
  const Fit correct =
      testing::compare(generator.count_threes(*correct_policy, *correct_rule, 77, texts),
                       testing::law_of_three(worst_pair->target, {1.0}));
  std::cout << "  without the fault: " << correct.text() << "\n";
  EXPECT_TRUE(correct.fits) << correct.text();
}

class JudgingFaults : public ::testing::TestWithParam<JudgingFault> {};

TEST_P(JudgingFaults, IsCaught) {
  const auto policy = make_dyspec_policy();
  const auto rule = make_faulty_rejection_rule(GetParam());
  expect_caught(rule->name(), *policy, *rule, DrawingFault::none, 5);
}

INSTANTIATE_TEST_SUITE_P(All, JudgingFaults,
                         ::testing::Values(JudgingFault::residual_not_renormalised,
                                           JudgingFault::accepts_at_zero,
                                           JudgingFault::siblings_share_uniform,
                                           JudgingFault::residual_shares_draft_noise,
                                           JudgingFault::sibling_order_lost,
                                           JudgingFault::declared_is_not_sampled),
                         [](const auto& of) {
                           std::string name = make_faulty_rejection_rule(of.param)->name();
                           std::erase_if(name, [](char c) { return std::isalnum(c) == 0; });
                           return name;
                         });

TEST(DrawingFaults, NodesOfEqualDepthShareNoise) {
  const auto policy = make_dyspec_policy();
  const auto rule = make_rejection_rule();
  expect_caught("nodes of equal depth share noise", *policy, *rule,
                DrawingFault::same_depth_shares_noise, 9);
}

TEST(DrawingFaults, RetriedPositionSharesNoise) {
  const auto policy = make_dyspec_policy();
  const auto rule = make_rejection_rule();
  expect_caught("a retried position shares noise", *policy, *rule, DrawingFault::retry_shares_noise,
                5);
}

TEST(DrawingFaults, DeclaredIsNotSampled) {
  const auto policy = make_dyspec_policy();
  const auto rule = make_rejection_rule();
  expect_caught("children of the top two, raw D declared", *policy, *rule,
                DrawingFault::declared_is_not_sampled, 5);
}

TEST(PolicyFaults, TiesOrderedByToken) {
  const auto policy = make_token_tie_policy();
  const auto rule = make_rejection_rule();
  expect_caught(policy->name(), *policy, *rule, DrawingFault::none, 5, "uniform");
}

TEST(PolicyFaults, SizeInHindsight) {
  const auto policy = make_hindsight_policy();
  const auto rule = make_rejection_rule();
  expect_caught(policy->name(), *policy, *rule, DrawingFault::none, 5);
}

// The same check with fixed shapes in DySpec's place. Two faults of drawing are not among these,
// for they do a fixed shape no harm: of nodes that share noise because their depths are equal, or
// because one retries the other's position, at most one has its children judged; and the shape,
// unlike DySpec's, does not depend on what the others drew.
class FixedShapes : public ::testing::TestWithParam<bool> {
 protected:
  static std::unique_ptr<DraftPolicy> policy() {
    if (!GetParam()) {
      return make_static_policy(
          TreeShape(std::vector<RankPath>{{0}, {1}, {0, 0}, {0, 1}, {2}, {1, 0}, {0, 0, 0}}));
    }
    return make_sequoia_policy(plan_sequoia(std::vector<double>{0.25, 0.4, 0.2}, {9, 3, 3}));
  }
};

TEST_P(FixedShapes, FaultsAreCaught) {
  const auto grown = policy();
  for (const JudgingFault fault :
       {JudgingFault::residual_not_renormalised, JudgingFault::siblings_share_uniform,
        JudgingFault::sibling_order_lost}) {
    const auto rule = make_faulty_rejection_rule(fault);
    expect_caught(grown->name() + ", " + rule->name(), *grown, *rule, DrawingFault::none, 64);
  }
  const auto rule = make_rejection_rule();
  expect_caught(grown->name() + ", children of the top two, raw D declared", *grown, *rule,
                DrawingFault::declared_is_not_sampled, 64);
}

INSTANTIATE_TEST_SUITE_P(All, FixedShapes, ::testing::Bool(), [](const auto& of) {
  return std::string(of.param ? "Sequoia" : "Static");
});

}  // namespace
}  // namespace coppice
