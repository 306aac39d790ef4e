// The audit's statistics against tables and simulation. Bounds on counts of rejections are
// binomial, at 1e-6 a test.
#include "study/audit/goodness_of_fit.h"

#include <gtest/gtest.h>

#include <boost/math/distributions/binomial.hpp>
#include <boost/math/distributions/chi_squared.hpp>
#include <cmath>
#include <random>

#include "study/statistics.h"

namespace coppice::study {
namespace {

std::vector<TokenId> draw(std::mt19937_64& random, std::span<const float> law, std::size_t count) {
  std::discrete_distribution<TokenId> of(law.begin(), law.end());
  std::vector<TokenId> samples(count);
  for (TokenId& token : samples) token = of(random);
  return samples;
}

// Falls by a constant factor from token to token, as laws of text do.
std::vector<float> falling_law(std::size_t vocab, double factor) {
  std::vector<double> weights(vocab);
  double sum = 0.0;
  for (std::size_t t = 0; t < vocab; ++t) sum += weights[t] = std::pow(factor, t);
  std::vector<float> law;
  for (const double w : weights) law.push_back(static_cast<float>(w / sum));
  return law;
}

// Most successes of `trials` that chance exceeds with probability 1e-6 only.
double most(int trials, double probability) {
  return boost::math::quantile(
      boost::math::complement(boost::math::binomial(trials, probability), 1e-6));
}

TEST(GoodnessOfFit, TailsMatchTables) {
  EXPECT_NEAR(chi_square_tail(3.841459, 1), 0.05, 1e-7);
  EXPECT_NEAR(chi_square_tail(23.20925, 10), 0.01, 1e-7);
  EXPECT_EQ(chi_square_tail(0.0, 0), 1.0);
  EXPECT_EQ(chi_square_tail(1.0, 0), 0.0);
  EXPECT_EQ(chi_square_tail(std::numeric_limits<double>::infinity(), 3), 0.0);
  // Noncentralities of Haynam, Govindarajulu and Leone's tables (1970): power 0.9.
  EXPECT_NEAR(detectable_noncentrality(1, 0.05, 0.9), 10.507, 2e-3);
  EXPECT_NEAR(detectable_noncentrality(10, 0.05, 0.9), 20.532, 2e-3);
}

// What only just raises no alarm leaves the bias possible that would be seen with that power.
TEST(GoodnessOfFit, WhatIsNotSeenIsSmall) {
  Fit fit;
  fit.samples = 4000.0;
  fit.degrees = 11.0;
  fit.chi_square =
      boost::math::quantile(boost::math::complement(boost::math::chi_squared(fit.degrees), 1e-6));
  EXPECT_NEAR(largest_variation(fit, 0.99), detectable_variation(11.0, 4000.0, 1e-6, 0.99), 1e-6);
  fit.chi_square = 11.0;  // as without a bias
  EXPECT_LT(largest_variation(fit, 0.99), 0.6 * detectable_variation(11.0, 4000.0, 1e-6, 0.99));
  EXPECT_GT(largest_variation(fit, 0.99), 0.0);
  fit.chi_square = 0.0;
  EXPECT_EQ(largest_variation(fit, 0.99), 0.0);
}

TEST(GoodnessOfFit, HolmStepsDown) {
  const std::vector<double> p = {0.012, 0.5, 0.001, 0.02};
  // 0.001 <= 0.05/4, 0.012 <= 0.05/3, 0.02 <= 0.05/2, 0.5 > 0.05.
  const auto falling = [&](double familywise) {
    std::vector<bool> falls;
    for (const double adjusted : holm_adjusted(p)) falls.push_back(adjusted <= familywise);
    return falls;
  };
  EXPECT_EQ(falling(0.05), (std::vector<bool>{true, false, true, true}));
  EXPECT_EQ(falling(0.03), (std::vector<bool>{false, false, true, false}));
  EXPECT_TRUE(holm_adjusted({}).empty());
}

TEST(GoodnessOfFit, TrueLawsRarelyAlarm) {
  std::mt19937_64 random(1);
  constexpr int trials = 500;
  int alarms = 0;
  double measured = 0.0, expected = 0.0;
  const TokenLaw a = make_token_law(falling_law(200, 0.8), {});
  const TokenLaw b = make_token_law(falling_law(200, 0.5), {});
  for (int i = 0; i < trials; ++i) {
    TokenTest tokens;
    for (const TokenLaw* law : {&a, &b}) {
      for (const std::size_t count : {std::size_t{600}, std::size_t{40}, std::size_t{9}}) {
        tokens.add(*law, draw(random, law->probability, count));
      }
    }
    alarms += tokens.fit().p_value < 0.01;
    measured += tokens.fit().total_variation / trials;
    expected += tokens.fit().expected_variation / trials;
  }
  EXPECT_LE(alarms, most(trials, 0.01));
  // The mean of 500 variations, each of a standard deviation of about a quarter of its mean.
  EXPECT_NEAR(measured / expected, 1.0, 0.06);
}

// A bias of the stated size, shaped to be hardest to see, is seen as often as stated.
TEST(GoodnessOfFit, StatedBiasIsSeen) {
  std::mt19937_64 random(2);
  constexpr std::size_t vocab = 12, count = 4000;
  constexpr int trials = 300;
  const TokenLaw law = make_token_law(std::vector<float>(vocab, 1.0f / vocab), {});
  const double bias = detectable_variation(vocab - 1, count, 1e-6, 0.99);
  ASSERT_LT(bias, 0.2);
  std::vector<float> biased(vocab);
  for (std::size_t t = 0; t < vocab; ++t) {
    biased[t] = static_cast<float>((1.0 + (t % 2 == 0 ? 2.0 : -2.0) * bias) / vocab);
  }
  int missed = 0, half_seen = 0;
  for (int i = 0; i < trials; ++i) {
    TokenTest whole;
    whole.add(law, draw(random, biased, count));
    missed += whole.fit().p_value > 1e-6;
    TokenTest quarter;  // what is too few samples must not be claimed
    quarter.add(law, draw(random, biased, count / 4));
    half_seen += quarter.fit().p_value <= 1e-6;
  }
  EXPECT_LE(missed, most(trials, 0.02));  // chi-square's law is the limit of many samples
  EXPECT_LT(half_seen, trials / 2);
}

TEST(GoodnessOfFit, ImpossibleTokensFallAtOnceUnlessRoundingExplainsThem) {
  std::vector<float> law = {0.5f, 0.5f, 0.0f, 0.0f};
  const std::vector<TokenId> borderline = {3};
  const TokenLaw prepared = make_token_law(law, borderline);
  std::vector<TokenId> samples(200, 0);
  std::fill(samples.begin(), samples.begin() + 100, 1);
  samples[0] = 3;
  TokenTest tied;
  tied.add(prepared, samples);
  EXPECT_EQ(tied.fit().impossible, 0);
  EXPECT_GT(tied.fit().p_value, 0.01);
  samples[0] = 2;
  TokenTest tokens;
  tokens.add(prepared, samples);
  EXPECT_EQ(tokens.fit().impossible, 1);
  EXPECT_EQ(tokens.fit().p_value, 0.0);
}

}  // namespace
}  // namespace coppice::study
