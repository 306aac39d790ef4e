// Paired differences: that they are found where intervals overlap, that they are not found where
// there are none, and how often their intervals hold the truth.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "study/statistics.h"

namespace coppice::study {
namespace {

/// Two policies on `n` prompts of very different difficulty: the second accepts `gain` more.
std::vector<PromptColumns> draw(std::mt19937_64& random, int n, double gain, double noise) {
  std::gamma_distribution<double> difficulty(4.0, 0.75);
  std::normal_distribution<double> normal;
  std::uniform_real_distribution<double> tokens(60.0, 128.0);
  std::vector<PromptColumns> rows(2);
  for (int p = 0; p < n; ++p) {
    const double length = 1.0 + difficulty(random), all = tokens(random);
    for (int row = 0; row < 2; ++row) {
      const double own = std::max(1.0, length + row * gain + noise * normal(random));
      const auto r = static_cast<std::size_t>(row);
      rows[r].kept.push_back(all);
      rows[r].steps.push_back(all / own);
      rows[r].decoded.push_back(all);
      rows[r].decode_seconds.push_back(all / own * std::exp(0.05 * normal(random)));
      rows[r].plain_decoded.push_back(all);
      rows[r].plain_seconds.push_back(all);
    }
  }
  return rows;
}

using Pairs = std::vector<std::pair<std::size_t, std::size_t>>;
const Pairs second_less_first = {{1, 0}};

Estimate length_of(const PromptColumns& row) { return bootstrap(row.kept, row.steps); }

TEST(Comparison, SeesWhatOverlappingIntervalsHide) {
  std::mt19937_64 random(1);
  const std::vector<PromptColumns> rows = draw(random, 24, 0.25, 0.1);
  const Estimate a = length_of(rows[0]), b = length_of(rows[1]);
  EXPECT_LT(b.low, a.high) << "the intervals overlap";
  const Comparison c = compare_rows(rows, second_less_first)[0];
  EXPECT_NEAR(c.accepted_length.estimate.value, b.value - a.value, 1e-12);
  EXPECT_GT(c.accepted_length.estimate.low, 0.0);
  EXPECT_LT(c.accepted_length.p, 0.001);
  EXPECT_EQ(c.accepted_length.estimate.n, 24);
  EXPECT_GT(c.speed.estimate.low, 1.0);
  EXPECT_LT(c.speed.estimate.high, 1.3);
  EXPECT_LT(c.speed.p, 0.05);
  // The other way round it is the same; and twice the same.
  const Comparison back = compare_rows(rows, Pairs{{0, 1}})[0];
  EXPECT_NEAR(back.accepted_length.estimate.low, -c.accepted_length.estimate.high, 1e-12);
  EXPECT_NEAR(back.speed.estimate.low, 1.0 / c.speed.estimate.high, 1e-3);
  EXPECT_EQ(compare_rows(rows, second_less_first)[0].speed.p, c.speed.p);
}

TEST(Comparison, OfARowWithItselfIsNothing) {
  std::mt19937_64 random(2);
  const std::vector<PromptColumns> rows = draw(random, 12, 1.0, 0.1);
  const Comparison c = compare_rows(rows, Pairs{{0, 0}})[0];
  EXPECT_EQ(c.accepted_length.estimate.low, 0.0);
  EXPECT_EQ(c.accepted_length.estimate.high, 0.0);
  EXPECT_EQ(c.accepted_length.p, 1.0);
  EXPECT_EQ(c.speed.estimate.value, 1.0);
  EXPECT_EQ(c.speed.p, 1.0);
}

TEST(Comparison, FourPromptsAreTooFew) {
  std::mt19937_64 random(3);
  const Comparison four = compare_rows(draw(random, 4, 1.0, 0.1), second_less_first)[0];
  EXPECT_TRUE(std::isfinite(four.speed.estimate.value));
  EXPECT_TRUE(std::isnan(four.speed.estimate.low));
  EXPECT_TRUE(std::isnan(four.speed.p));
  EXPECT_TRUE(std::isnan(four.speed.p_holm));
}

// Each row's speed is taken over its own plain decoding: that of another hour, here, which was five
// times slower throughout.
TEST(Comparison, ComparesSpeedupsWhereMachinesDiffer) {
  std::mt19937_64 random(9);
  std::vector<PromptColumns> rows = draw(random, 24, 0.25, 0.1);
  const Tested before = compare_rows(rows, second_less_first)[0].speed;
  for (Values* seconds : {&rows[1].decode_seconds, &rows[1].plain_seconds}) {
    for (double& one : *seconds) one *= 5.0;
  }
  const Tested after = compare_rows(rows, second_less_first)[0].speed;
  EXPECT_NEAR(after.estimate.value, before.estimate.value, 1e-12);
  EXPECT_NEAR(after.estimate.low, before.estimate.low, 1e-12);
  EXPECT_EQ(after.p, before.p);
}

// A known case: for a constant denominator the difference is a mean of differences, whose p is that
// of Student's t. Differences of mean 1 and standard deviation 1.5 on 9 prompts: t = 2, p = 0.0805.
TEST(Comparison, AgreesWithStudentsTest) {
  std::vector<double> values = {-1.1, 0.2, 0.7, 0.9, 1.0, 1.2, 1.4, 2.1, 2.6};
  double mean = 0.0, squares = 0.0;
  for (const double v : values) mean += v / 9.0;
  for (const double v : values) squares += (v - mean) * (v - mean) / 8.0;
  std::vector<PromptColumns> rows(2);
  for (const double v : values) {
    rows[0].kept.push_back(100.0);
    rows[1].kept.push_back(100.0 + 1.0 + (v - mean) * 1.5 / std::sqrt(squares));
    for (PromptColumns& row : rows) {
      row.steps.push_back(1.0);
      row.decoded.push_back(1.0);
      row.decode_seconds.push_back(1.0);
      row.plain_decoded.push_back(1.0);
      row.plain_seconds.push_back(1.0);
    }
  }
  const Comparison c = compare_rows(rows, second_less_first)[0];
  EXPECT_NEAR(c.accepted_length.estimate.value, 1.0, 1e-9);
  EXPECT_NEAR(c.accepted_length.p, 0.0805, 0.02);
  // And p is below 0.05 where the interval leaves 0 out: here it does not.
  EXPECT_LT(c.accepted_length.estimate.low, 0.0);
  // Far out, where no resample lies beyond: t = 10 on 8 degrees of freedom.
  for (double& good : rows[1].kept) good += 4.0;
  const Comparison far = compare_rows(rows, second_less_first)[0];
  EXPECT_LT(far.accepted_length.p, 1e-4);
  EXPECT_GT(far.accepted_length.p, 1e-7);
}

TEST(Comparison, HolmCountsAllPairs) {
  std::mt19937_64 random(4);
  std::vector<PromptColumns> rows = draw(random, 24, 0.3, 0.3);
  for (const PromptColumns& row : draw(random, 24, 0.0, 0.3)) rows.push_back(row);
  const Pairs pairs = {{0, 1}, {0, 2}, {0, 3}, {1, 2}, {1, 3}, {2, 3}};
  const std::vector<Comparison> all = compare_rows(rows, pairs);
  std::vector<double> p;
  for (const Comparison& one : all) p.push_back(one.accepted_length.p);
  const std::vector<double> adjusted = holm_adjusted(p);
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(all[i].accepted_length.p_holm, adjusted[i]);
    EXPECT_EQ(std::pair(all[i].first, all[i].second), pairs[i]);
    EXPECT_EQ(all[i].accepted_length.p, compare_rows(rows, Pairs{pairs[i]})[0].accepted_length.p)
        << "of the others only Holm's share depends";
  }
}

// For 6, 12 and 24 prompts: intervals hold the true difference about 95% of the time, and where
// there is none, p below 0.05 comes about 5% of the time.
TEST(Comparison, CoversTheTruthAndKeepsItsLevel) {
  constexpr int samples = 400;
  for (const int n : {6, 12, 24}) {
    std::mt19937_64 random(11 + static_cast<unsigned>(n));
    // The truth, from many prompts: differences of ratios of sums are no plain means.
    const std::vector<PromptColumns> many = draw(random, 200000, 0.4, 0.4);
    double sums[2][2] = {};
    for (std::size_t row = 0; row < 2; ++row) {
      for (std::size_t p = 0; p < many[row].steps.size(); ++p) {
        sums[row][0] += many[row].kept[p];
        sums[row][1] += many[row].steps[p];
      }
    }
    const double truth = sums[1][0] / sums[1][1] - sums[0][0] / sums[0][1];
    int covered = 0, alarms = 0, speed_alarms = 0;
    for (int s = 0; s < samples; ++s) {
      const BootstrapOptions options{2000, static_cast<std::uint64_t>(s)};
      const Comparison c = compare_rows(draw(random, n, 0.4, 0.4), second_less_first, options)[0];
      const Estimate& e = c.accepted_length.estimate;
      covered += e.low <= truth && truth <= e.high ? 1 : 0;
      const Comparison none =
          compare_rows(draw(random, n, 0.0, 0.4), second_less_first, options)[0];
      alarms += none.accepted_length.p < 0.05 ? 1 : 0;
      speed_alarms += none.speed.p < 0.05 ? 1 : 0;
      const bool outside =
          none.accepted_length.estimate.low > 0.0 || none.accepted_length.estimate.high < 0.0;
      const double p = none.accepted_length.p;
      if (p < 0.04 || p > 0.06) {
        EXPECT_EQ(outside, p < 0.05) << p;
      }
    }
    // Four standard deviations of a share of 400 at 0.95 are 0.044. Without Hesterberg's expansion
    // 6 prompts cover 0.84.
    EXPECT_GE(covered, static_cast<int>(samples * 0.906)) << n;
    EXPECT_LE(alarms, static_cast<int>(samples * 0.094)) << n;
    EXPECT_LE(speed_alarms, static_cast<int>(samples * 0.094)) << n;
    EXPECT_GE(alarms, static_cast<int>(samples * 0.006)) << n << ": p is of no use";
  }
}

}  // namespace
}  // namespace coppice::study
