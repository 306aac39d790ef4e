#include <gtest/gtest.h>

#include <cmath>
#include <random>
#include <vector>

#include "drafting/belief_temperature.h"
#include "drafting/child_drawer.h"
#include "kernels/logits.h"
#include "kernels/noise.h"

namespace coppice {
namespace {

constexpr std::size_t vocab = 1000;

std::vector<float> random_row(std::mt19937_64& random, double spread) {
  std::normal_distribution<double> normal(0.0, spread);
  std::vector<float> row(vocab);
  double sum = 0.0;
  for (float& prob : row) sum += prob = static_cast<float>(std::exp(normal(random)));
  for (float& prob : row) prob = static_cast<float>(static_cast<double>(prob) / sum);
  for (std::size_t i = 0; i < vocab; i += 7) row[i] = 0.0f;
  return row;
}

// softmax(inverse_temperature (log D + G)) in double.
std::vector<double> beliefs(const std::vector<float>& row, std::span<const float> noise,
                            double inverse_temperature) {
  std::vector<double> of(row.size());
  double sum = 0.0;
  for (std::size_t i = 0; i < row.size(); ++i) {
    const double product =
        static_cast<double>(row[i]) * (noise.empty() ? 1.0 : static_cast<double>(noise[i]));
    sum += of[i] = product > 0.0 ? std::pow(product, inverse_temperature) : 0.0;
  }
  for (double& belief : of) belief /= sum;
  return of;
}

TEST(Belief, ChildrenComeWithTheirs) {
  std::mt19937_64 random(3);
  NoiseCache noise(vocab);
  ChildDrawer drawer(vocab, noise);
  TokenTree tree;
  tree.reset(0);
  for (int trial = 0; trial < 40; ++trial) {
    const std::vector<float> row = random_row(random, 0.5 + trial % 5);
    for (const AcceptanceRule draw : {AcceptanceRule::greedy, AcceptanceRule::coupled}) {
      for (const double inverse_temperature : {0.3, 1.0, 2.2, 8.0}) {
        const StepKey key{1, 2, 3, static_cast<std::uint64_t>(trial)};
        drawer.begin(key, draw, inverse_temperature);
        std::copy(row.begin(), row.end(), drawer.prepare(0).begin());
        drawer.ready(0);
        const auto expected = beliefs(row,
                                      draw == AcceptanceRule::coupled
                                          ? noise.row(key.seed, key.sequence, key.noise_position(0))
                                          : std::span<const float>(),
                                      inverse_temperature);
        double last = 1.0;
        for (std::int32_t rank = 0; rank < 20; ++rank) {
          const auto child = drawer.child(tree, 0, rank);
          ASSERT_TRUE(child);
          const auto belief = static_cast<double>(child->belief);
          ASSERT_NEAR(belief, expected[static_cast<std::size_t>(child->token)], 1e-5);
          ASSERT_LE(belief, last * (1.0 + 1e-5)) << "most believed first";
          last = belief;
        }
      }
    }
  }
}

TEST(Belief, SampledChildrenComeWithTheCellOfTheirNumber) {
  NoiseCache noise(vocab);
  ChildDrawer drawer(vocab, noise);
  std::mt19937_64 random(5);
  const std::vector<float> row = random_row(random, 1.0);
  TokenTree tree;
  tree.reset(0);
  const StepKey key{7, 8, 9, 10};
  drawer.begin(key, AcceptanceRule::rejection);
  std::copy(row.begin(), row.end(), drawer.prepare(0).begin());
  drawer.ready(0);
  for (std::uint64_t rank = 0; rank < 50; ++rank) {
    const auto child = drawer.child(tree, 0, static_cast<std::int32_t>(rank));
    ASSERT_TRUE(child);
    EXPECT_LT(child->belief, 0.0f);
    EXPECT_NEAR(static_cast<double>(child->uniform),
                uniform(RandomStream::accept, key, root_node_key, rank), 0.5 / acceptance_cells);
  }
}

// Tokens drawn by a belief of some inverse temperature: it is found, from a start that is far off,
// and the derivative is the log-likelihood's.
TEST(BeliefTemperature, FindsTheInverseTemperature) {
  std::mt19937_64 random(11);
  NoiseCache noise(vocab);
  ChildDrawer drawer(vocab, noise);
  TokenTree tree;
  tree.reset(0);
  for (const double truth : {0.5, 1.3, 3.0}) {
    BeliefTemperature learned(truth < 1.0 ? 3.0 : 0.4);
    for (std::uint64_t step = 0; step < 3000; ++step) {
      const std::vector<float> row = random_row(random, 2.0);
      const StepKey key{1, 2, step, step};
      drawer.begin(key, AcceptanceRule::coupled, learned.inverse_temperature());
      std::copy(row.begin(), row.end(), drawer.prepare(0).begin());
      drawer.ready(0);
      ASSERT_TRUE(drawer.child(tree, 0, 0));
      const auto law = beliefs(row, noise.row(1, 2, step), truth);
      std::discrete_distribution<std::int32_t> draw(law.begin(), law.end());
      const TokenId token = draw(random);
      const auto seen = drawer.evidence(0, token);
      ASSERT_TRUE(seen);
      if (step % 500 == 0) {
        const auto at = static_cast<std::size_t>(token);
        const double s = learned.inverse_temperature(), h = 1e-3;
        const auto n = noise.row(1, 2, step);
        const double slope = (std::log(beliefs(row, n, s * std::exp(h))[at]) -
                              std::log(beliefs(row, n, s * std::exp(-h))[at])) /
                             (2.0 * h);
        EXPECT_NEAR(seen->derivative, slope, 1e-3 * (1.0 + std::abs(slope)));
      }
      learned.observe(*seen);
    }
    EXPECT_NEAR(std::log(learned.inverse_temperature()), std::log(truth), 0.15);
  }
  // A token that the draft excludes says nothing, and neither does a sampled tree.
  EXPECT_FALSE(drawer.evidence(0, 0));
  EXPECT_FALSE(drawer.evidence(1, 1));
  drawer.begin({}, AcceptanceRule::rejection);
  EXPECT_FALSE(drawer.evidence(0, 1));
}

// A draft that is always right: found out within a text, though each token says less and less. One
// that is wrong as often as it is believed to be is not taken for it.
TEST(BeliefTemperature, FindsOutADraftThatEqualsTheTarget) {
  std::mt19937_64 random(12);
  NoiseCache noise(vocab);
  ChildDrawer drawer(vocab, noise);
  TokenTree tree;
  tree.reset(0);
  for (const bool equal : {true, false}) {
    BeliefTemperature learned(1.3);
    for (std::uint64_t step = 0; step < 60; ++step) {
      const std::vector<float> row = random_row(random, 3.0);
      drawer.begin({1, 2, step, step}, AcceptanceRule::coupled, learned.inverse_temperature());
      std::copy(row.begin(), row.end(), drawer.prepare(0).begin());
      drawer.ready(0);
      TokenId token = drawer.child(tree, 0, 0)->token;
      if (!equal) {
        const auto law = beliefs(row, noise.row(1, 2, step), 1.3);
        std::discrete_distribution<std::int32_t> draw(law.begin(), law.end());
        token = draw(random);
      }
      learned.observe(*drawer.evidence(0, token));
    }
    if (equal) {
      EXPECT_GT(learned.inverse_temperature(), 10.0);
    } else {
      EXPECT_LT(std::abs(std::log(learned.inverse_temperature() / 1.3)), 0.5);
    }
  }
}

TEST(PairInverseTemperature, IsTheMeanOfTextsAndWhatIsUsual) {
  PairInverseTemperature pair;
  EXPECT_DOUBLE_EQ(pair.start(1.7), 1.7);
  pair.record(4.0, 1.0);
  EXPECT_DOUBLE_EQ(pair.start(1.0), 2.0);
  for (int text = 0; text < 1000; ++text) pair.record(8.0, 1.0);
  EXPECT_NEAR(pair.start(1.0), 8.0, 1.0);
}

// Temperatures that are told together differ in what is usual.
TEST(PairInverseTemperature, IsRelativeToWhatIsUsual) {
  PairInverseTemperature pair;
  pair.record(6.0, 1.5);
  EXPECT_DOUBLE_EQ(pair.start(1.5), 3.0);
  EXPECT_DOUBLE_EQ(pair.start(0.1), 0.2);
}

// Whatever temperature a text has, learning begins where it can end: evidence that asks for no
// change changes nothing, and evidence in one direction moves that way.
TEST(BeliefTemperature, StartsWhereItCanStay) {
  for (const double temperature : {1e-6, 0.001, 0.7, 100.0}) {
    const double start = BeliefTemperature::usual(temperature, 0.45);
    BeliefTemperature learned(start);
    const double before = learned.inverse_temperature();
    learned.observe({0.0, 1.0});
    EXPECT_EQ(learned.inverse_temperature(), before) << temperature;
    const double inwards = start > 1.0 ? -1.0 : 1.0;
    learned.observe({inwards, 1.0});
    EXPECT_GT(inwards * (learned.inverse_temperature() - before), 0.0) << temperature;
    EXPECT_LT(std::abs(std::log(before)), 4.0 + 1e-9);
  }
}

}  // namespace
}  // namespace coppice
