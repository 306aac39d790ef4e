#include "drafting/child_drawer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "base/error.h"
#include "kernels/logits.h"

namespace coppice {
namespace {

std::vector<float> random_row(std::mt19937_64& random, std::size_t vocab, int zeros_in_ten) {
  std::vector<float> row(vocab);
  double sum = 0.0;
  for (float& x : row) {
    x = static_cast<int>(random() % 10) < zeros_in_ten ? 0.0f
                                                       : static_cast<float>(random() % 50 + 1);
  }
  row[random() % vocab] = 7.0f;
  for (float x : row) sum += static_cast<double>(x);
  for (float& x : row) x = static_cast<float>(x / sum);
  return row;
}

TokenTree root_only() {
  TokenTree tree;
  tree.reset(0);
  return tree;
}

std::vector<TokenId> draw_all(ChildDrawer& drawer, const std::vector<float>& row,
                              const StepKey& key, AcceptanceRule mode) {
  const TokenTree tree = root_only();
  drawer.begin(key, mode);
  std::copy(row.begin(), row.end(), drawer.prepare(0).begin());
  drawer.ready(0);
  std::vector<TokenId> tokens;
  for (std::int32_t rank = 0;; ++rank) {
    const auto child = drawer.child(tree, 0, rank);
    if (!child) break;
    EXPECT_EQ(child->prob, row[static_cast<std::size_t>(child->token)]);
    tokens.push_back(child->token);
  }
  const auto kept = drawer.distributions().row(0);
  EXPECT_TRUE(std::equal(row.begin(), row.end(), kept.begin()));
  return tokens;
}

// Drawers that share memory have as much as their steps had at a time, not each its largest step's.
TEST(ChildDrawer, SharesTheMemoryOfStepsThatHaveEnded) {
  constexpr std::int64_t vocab = 300;
  NoiseCache noise(vocab);
  const auto spare = std::make_shared<SpareRows>();
  std::vector<ChildDrawer> drawers;
  for (int i = 0; i < 4; ++i) {
    drawers.emplace_back(vocab, noise, PhiloxDecisions(), acceptance_cells, spare);
  }
  std::set<const float*> places;
  const auto step = [&](ChildDrawer& drawer, std::int32_t nodes) {
    drawer.begin({}, AcceptanceRule::rejection);
    for (std::int32_t node = 0; node < nodes; ++node) places.insert(drawer.prepare(node).data());
  };
  for (ChildDrawer& drawer : drawers) {
    step(drawer, 9);
    drawer.end();
  }
  EXPECT_EQ(spare->made(), 9u);
  for (ChildDrawer& drawer : drawers) step(drawer, 2);  // side by side
  EXPECT_EQ(spare->made(), 9u);
  step(drawers[0], 5);
  step(drawers[1], 3);
  EXPECT_EQ(spare->made(), 12u);
  drawers.clear();
  EXPECT_EQ(spare->made(), 12u);
  EXPECT_EQ(places.size(), 12u);
}

// Every token of positive probability exactly once, in every mode and size.
TEST(ChildDrawer, DrawsWhatHasMassOnce) {
  std::mt19937_64 random(1);
  for (const std::size_t vocab : {1, 2, 5, 63, 64, 65, 300, 4096, 30000}) {
    NoiseCache noise(static_cast<std::int64_t>(vocab));
    ChildDrawer drawer(static_cast<std::int64_t>(vocab), noise);
    for (const int zeros : {0, 5, 10}) {
      const std::vector<float> row = random_row(random, vocab, zeros);
      for (const AcceptanceRule mode :
           {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
        const std::vector<TokenId> tokens = draw_all(drawer, row, {1, 2, 3, 4}, mode);
        const std::set<TokenId> distinct(tokens.begin(), tokens.end());
        EXPECT_EQ(distinct.size(), tokens.size());
        EXPECT_EQ(static_cast<std::ptrdiff_t>(tokens.size()),
                  std::count_if(row.begin(), row.end(), [](float x) { return x > 0.0f; }));
        for (TokenId token : tokens) EXPECT_GT(row[static_cast<std::size_t>(token)], 0.0f);
      }
    }
  }
}

TEST(ChildDrawer, TopAndCoupledFollowTheirOrder) {
  std::mt19937_64 random(2);
  for (const std::size_t vocab : {7, 130, 2000}) {
    NoiseCache cache(static_cast<std::int64_t>(vocab));
    ChildDrawer drawer(static_cast<std::int64_t>(vocab), cache);
    const std::vector<float> row = random_row(random, vocab, 2);
    std::vector<float> noise(vocab);
    inverse_exponential_noise(1, 2, 9, noise);
    std::vector<float> score(vocab);
    for (std::size_t i = 0; i < vocab; ++i) score[i] = row[i] * noise[i];
    for (const auto& [mode, by] :
         {std::pair{AcceptanceRule::greedy, row}, {AcceptanceRule::coupled, score}}) {
      std::vector<TokenId> expected(vocab);
      std::iota(expected.begin(), expected.end(), 0);
      std::stable_sort(expected.begin(), expected.end(), [&](TokenId a, TokenId b) {
        return by[static_cast<std::size_t>(a)] > by[static_cast<std::size_t>(b)];
      });
      std::erase_if(expected, [&](TokenId t) { return row[static_cast<std::size_t>(t)] == 0.0f; });
      EXPECT_EQ(draw_all(drawer, row, {1, 2, 3, 9}, mode), expected);
    }
    EXPECT_EQ(draw_all(drawer, row, {1, 2, 3, 9}, AcceptanceRule::coupled)[0],
              argmax_product(row, noise));
  }
}

// What is believed of a token is what it has once it is drawn, and asking changes no child.
TEST(ChildDrawer, SaysWhatItBelievesOfAnyToken) {
  constexpr std::size_t vocab = 60;
  std::mt19937_64 random(3);
  const TokenTree tree = root_only();
  NoiseCache noise(vocab);
  ChildDrawer asked(vocab, noise), drawer(vocab, noise);
  for (const AcceptanceRule rule :
       {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    const std::vector<float> row = random_row(random, vocab, 5);
    for (ChildDrawer* const each : {&asked, &drawer}) {
      each->begin({1, 2, 3, 9}, rule, 2.0);
      EXPECT_LT(each->belief_of(tree, 0, 0), 0.0) << "not evaluated";
      std::ranges::copy(row, each->prepare(0).begin());
      each->ready(0);
    }
    std::vector<double> believed;
    double sum = 0.0;
    for (TokenId token = 0; token < static_cast<TokenId>(vocab); ++token) {
      believed.push_back(asked.belief_of(tree, 0, token));
      sum += believed.back();
    }
    EXPECT_NEAR(sum, 1.0, 1e-4);
    std::size_t drawn = 0;
    for (std::int32_t rank = 0;; ++rank) {
      const auto child = asked.child(tree, 0, rank), expected = drawer.child(tree, 0, rank);
      ASSERT_EQ(child.has_value(), expected.has_value());
      if (!child) break;
      ++drawn;
      ASSERT_EQ(child->token, expected->token);
      const float mass = child->belief < 0.0f ? child->prob : child->belief;
      EXPECT_FLOAT_EQ(static_cast<float>(believed[static_cast<std::size_t>(child->token)]), mass);
    }
    EXPECT_EQ(static_cast<std::ptrdiff_t>(drawn),
              std::ranges::count_if(row, [](float p) { return p > 0.0f; }));
  }
}

// Of what a token from elsewhere has taken nothing is expected, whether it came before or after the
// first draw.
TEST(ChildDrawer, ExpectsNothingOfExcludedTokens) {
  constexpr std::size_t vocab = 4;
  const TokenTree tree = root_only();
  NoiseCache noise(vocab);
  ChildDrawer drawer(vocab, noise);
  drawer.begin({1, 2, 3, 9}, AcceptanceRule::rejection);
  const std::vector<float> row = {0.7f, 0.1f, 0.1f, 0.1f};
  std::ranges::copy(row, drawer.prepare(0).begin());
  drawer.ready(0);
  EXPECT_NEAR(drawer.expected_share(0), 0.52, 1e-6);
  drawer.exclude(0, 0);
  EXPECT_NEAR(drawer.expected_share(0), 1.0 / 3.0, 1e-6);
  ASSERT_TRUE(drawer.child(tree, 0, 1));
  EXPECT_NEAR(drawer.expected_share(0), 0.5, 1e-6);
}

// A child is the same whatever else was evaluated and drawn, and in whatever order.
TEST(ChildDrawer, ChildrenDoNotDependOnTheOrderOfWork) {
  std::mt19937_64 random(4);
  const std::size_t vocab = 50;
  NoiseCache noise(vocab);
  ChildDrawer first(vocab, noise), second(vocab, noise);
  const std::vector<float> row_a = random_row(random, vocab, 0),
                           row_b = random_row(random, vocab, 0);
  for (const AcceptanceRule mode :
       {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    const StepKey key{1, 1, 1, 1};
    const auto give = [&](ChildDrawer& drawer, std::int32_t node, const std::vector<float>& row) {
      std::copy(row.begin(), row.end(), drawer.prepare(node).begin());
      drawer.ready(node);
    };
    first.begin(key, mode);
    second.begin(key, mode);
    give(first, 0, row_a);
    give(second, 0, row_a);
    // Node ids differ: the path of ranks names a node.
    TokenTree a = root_only(), b = root_only();
    const auto c0 = first.child(a, 0, 0), c1 = first.child(a, 0, 1);
    second.child(b, 0, 0);
    second.child(b, 0, 1);
    const auto c2 = second.child(b, 0, 2);
    a.add(0, c0->token, 0, c0->prob, 1.0);
    a.add(0, c1->token, 1, c1->prob, 0.5);
    b.add(0, c0->token, 0, c0->prob, 1.0);
    b.add(0, 49, 0, 0.5f, 1.0);  // some other node in between
    b.add(0, c1->token, 1, c1->prob, 0.5);
    give(first, 2, row_b);
    give(second, 3, row_b);
    const auto d0 = first.child(a, 2, 0), d1 = first.child(a, 2, 1);
    EXPECT_EQ(first.child(a, 0, 2)->token, c2->token);
    EXPECT_EQ(second.child(b, 3, 0)->token, d0->token);
    EXPECT_EQ(second.child(b, 3, 1)->token, d1->token);
  }
}

TEST(ChildDrawer, RefusesRanksOutOfOrder) {
  NoiseCache noise(4);
  ChildDrawer drawer(4, noise);
  const TokenTree tree = root_only();
  drawer.begin({}, AcceptanceRule::rejection);
  EXPECT_THROW(drawer.child(tree, 0, 0), Error);
  const auto row = drawer.prepare(0);
  std::fill(row.begin(), row.end(), 0.25f);
  EXPECT_THROW(drawer.child(tree, 0, 0), Error);
  drawer.ready(0);
  EXPECT_THROW(drawer.child(tree, 0, 1), Error);
  EXPECT_TRUE(drawer.child(tree, 0, 0).has_value());
  EXPECT_THROW(drawer.child(tree, 0, 0), Error);
  drawer.begin({}, AcceptanceRule::rejection);
  EXPECT_THROW(drawer.child(tree, 0, 1), Error);
}

}  // namespace
}  // namespace coppice
