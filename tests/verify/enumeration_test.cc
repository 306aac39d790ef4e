// The instrument of losslessness_test.cc itself.
#include "reference/enumeration.h"

#include <gtest/gtest.h>

#include <map>
#include <utility>
#include <vector>

#include "drafting/child_drawer-inl.h"
#include "kernels/logits.h"
#include "reference/exact_law.h"

namespace coppice::testing {
namespace {

RandomAddress address(std::uint64_t index) { return {RandomStream::accept, {}, 1, index}; }

TEST(Enumeration, TakesEveryOutcomeWithItsProbability) {
  const std::vector<float> weights{0.5f, 0.0f, 0x1p-20f, 0.25f, 0.25f - 0x1p-20f};
  std::map<std::pair<bool, TokenId>, double> law;
  Enumeration enumeration;
  enumeration.each([&] {
    const bool accepted = enumeration.decide(address(0), [](double u) { return u < 0.3; });
    const TokenId token =
        enumeration.decide(address(1), [&](double u) { return sample_inverse_cdf(weights, u); });
    law[{accepted, token}] += enumeration.probability();
  });
  EXPECT_EQ(enumeration.paths(), 8);
  EXPECT_FALSE(enumeration.address_shared());
  ASSERT_EQ(law.size(), 8u);
  for (const auto& [outcome, probability] : law) {
    const double expected = (outcome.first ? 0.3 : 0.7) *
                            static_cast<double>(weights[static_cast<std::size_t>(outcome.second)]);
    EXPECT_NEAR(probability, expected, 1e-15);
  }
}

TEST(Enumeration, CertainOutcomesAreOnePath) {
  Enumeration enumeration;
  enumeration.each([&] {
    EXPECT_TRUE(enumeration.decide(address(0), [](double u) { return u < 1.0; }));
    EXPECT_FALSE(enumeration.decide(address(1), [](double u) { return u < 0.0; }));
    EXPECT_EQ(enumeration.probability(), 1.0);
  });
  EXPECT_EQ(enumeration.paths(), 1);
}

// One number behind two decisions: below 0.3, or from there to 0.6, or above both.
TEST(Enumeration, DecisionsAtOneAddressShareTheNumber) {
  std::map<std::pair<bool, bool>, double> law;
  Enumeration enumeration;
  enumeration.each([&] {
    const bool first = enumeration.decide(address(0), [](double u) { return u < 0.3; });
    const bool second = enumeration.decide(address(0), [](double u) { return u < 0.6; });
    law[{first, second}] += enumeration.probability();
  });
  EXPECT_TRUE(enumeration.address_shared());
  EXPECT_EQ(enumeration.paths(), 3);
  EXPECT_FALSE(law.contains({true, false}));
  EXPECT_NEAR((law[{true, true}]), 0.3, 1e-15);
  EXPECT_NEAR((law[{false, true}]), 0.3, 1e-15);
  EXPECT_NEAR((law[{false, false}]), 0.4, 1e-15);
}

// What was seen of a number holds for the decision that takes it.
TEST(Enumeration, ALookIsNoDecision) {
  std::map<std::pair<int, bool>, double> law;
  Enumeration enumeration;
  enumeration.each([&] {
    const int cell =
        enumeration.look(address(0), [](double u) { return static_cast<int>(u * 4.0); });
    const bool accepted = enumeration.decide(address(0), [](double u) { return u < 0.6; });
    law[{cell, accepted}] += enumeration.probability();
  });
  EXPECT_FALSE(enumeration.address_shared());
  EXPECT_EQ(enumeration.paths(), 5);
  EXPECT_NEAR((law[{1, true}]), 0.25, 1e-15);
  EXPECT_NEAR((law[{2, true}]), 0.1, 1e-15);
  EXPECT_NEAR((law[{2, false}]), 0.15, 1e-15);
  EXPECT_FALSE(law.contains({3, true}));
}

// All of a node's children against the law of sampling without replacement.
TEST(Enumeration, ChildrenAreSampledWithoutReplacement) {
  for (const std::vector<float>& row :
       {std::vector<float>{0.5f, 0.25f, 0.125f, 0.125f},
        std::vector<float>{0.96875f, 0.0078125f, 0.0f, 0.0078125f, 0.015625f},
        std::vector<float>{1.0f - 0x1p-24f, 0x1p-24f}}) {
    const auto vocab = static_cast<std::int64_t>(row.size());
    Enumeration enumeration;
    NoiseCache noise(vocab);
    BasicChildDrawer<EnumeratedDecisions> drawer(vocab, noise, EnumeratedDecisions(enumeration), 0);
    TokenTree tree;
    tree.reset(0);
    std::map<std::vector<TokenId>, double> law;
    enumeration.each([&] {
      drawer.begin({}, AcceptanceRule::rejection);
      std::copy(row.begin(), row.end(), drawer.prepare(0).begin());
      drawer.ready(0);
      std::vector<TokenId> tokens;
      while (const auto child = drawer.child(tree, 0, static_cast<std::int32_t>(tokens.size()))) {
        tokens.push_back(child->token);
      }
      law[tokens] += enumeration.probability();
    });
    std::size_t orders = 1, positive = 0;
    for (const float prob : row) orders *= prob > 0.0f ? ++positive : 1;
    EXPECT_EQ(law.size(), orders);
    for (const auto& [tokens, probability] : law) {
      double expected = 1.0, left = 1.0;
      for (const TokenId token : tokens) {
        const auto prob = static_cast<double>(row[static_cast<std::size_t>(token)]);
        expected *= prob / left;
        left -= prob;
      }
      EXPECT_NEAR(probability, expected, 1e-14);
    }
  }
}

// A text law by hand: half of the texts end after one token.
TEST(Enumeration, TextsAreFinishedByTheTarget) {
  PathRows target(2, [](const TokenPath& path) {
    return path.empty() ? std::vector<float>{0.75f, 0.25f} : std::vector<float>{0.5f, 0.5f};
  });
  EXPECT_LT(compare_exactly({{{0}, 0.75}, {{1, 0}, 0.125}, {{1, 1}, 0.125}}, target).largest,
            1e-15);
  // What is written short depends on what would have come.
  const LawError error = compare_exactly({{{0}, 0.75}, {{1, 0}, 0.125}, {{1}, 0.125}}, target);
  EXPECT_NEAR(error.largest, 0.0625, 1e-15);
  EXPECT_EQ(error.at.size(), 2u);
  EXPECT_NEAR(compare_exactly({{{0}, 0.5}, {{1}, 0.5}}, target).largest, 0.25, 1e-15);
}

}  // namespace
}  // namespace coppice::testing
