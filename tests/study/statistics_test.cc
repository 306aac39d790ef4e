// Whether 95% intervals hold the truth 95% of the time.
#include "study/statistics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace coppice::study {
namespace {

constexpr int prompts = 40, texts_per_prompt = 8;

/// Prompts of different speed and length: numerator and denominator of each text.
struct Sample {
  std::vector<std::vector<double>> by_prompt = {{}, {}}, by_text = {{}, {}};
};

// A prompt's ratio is 2 + gamma(2, 0.5) on average over its texts, its weight independent of it, so
// the ratio of sums tends to 3.
constexpr double truth = 3.0;
Sample draw(std::mt19937_64& random) {
  std::gamma_distribution<double> prompt_ratio(2.0, 0.5);
  std::uniform_real_distribution<double> weight(0.5, 1.5);
  std::normal_distribution<double> noise(0.0, 0.2);
  Sample sample;
  for (int p = 0; p < prompts; ++p) {
    const double ratio = 2.0 + prompt_ratio(random);
    double above = 0.0, below = 0.0;
    for (int t = 0; t < texts_per_prompt; ++t) {
      const double w = weight(random), value = w * (ratio + noise(random));
      sample.by_text[0].push_back(value);
      sample.by_text[1].push_back(w);
      above += value;
      below += w;
    }
    sample.by_prompt[0].push_back(above);
    sample.by_prompt[1].push_back(below);
  }
  return sample;
}

Estimate ratio(const std::vector<std::vector<double>>& columns,
               const BootstrapOptions& options = {}) {
  return bootstrap(columns[0], columns[1], options);
}

TEST(Bootstrap, IntervalsCoverTheTruth) {
  constexpr int samples = 500;
  std::mt19937_64 random(7);
  int covered = 0, covered_by_texts = 0;
  for (int s = 0; s < samples; ++s) {
    const Sample sample = draw(random);
    const BootstrapOptions options{400, static_cast<std::uint64_t>(s)};
    const Estimate right = ratio(sample.by_prompt, options);
    const Estimate wrong = ratio(sample.by_text, options);
    covered += right.low <= truth && truth <= right.high ? 1 : 0;
    covered_by_texts += wrong.low <= truth && truth <= wrong.high ? 1 : 0;
    EXPECT_NEAR(right.value, wrong.value, 1e-9);
    EXPECT_EQ(right.n, prompts);
  }
  // The interval of 40 skewed prompts covers 0.93 to 0.95. Four standard deviations of a
  // binomial share of 500 at 0.94 are 0.042.
  EXPECT_GT(covered, static_cast<int>(samples * 0.888));
  EXPECT_LT(covered, static_cast<int>(samples * 0.99));
  // The planted fault: texts of one prompt taken for independent. Theory: about 0.5.
  EXPECT_LT(covered_by_texts, static_cast<int>(samples * 0.7));
}

// For a mean of normal values Student's interval is exact, and the expanded one comes close to it.
TEST(Bootstrap, OfFewNormalValuesItIsStudents) {
  std::mt19937_64 random(5);
  std::normal_distribution<double> normal(1.0, 2.0);
  double widths = 0.0, students = 0.0;
  constexpr int samples = 60, n = 8;
  for (int s = 0; s < samples; ++s) {
    std::vector<std::vector<double>> columns = {{}, std::vector<double>(n, 1.0)};
    double sum = 0.0, squares = 0.0;
    for (int i = 0; i < n; ++i) {
      const double value = normal(random);
      columns[0].push_back(value);
      sum += value;
      squares += value * value;
    }
    const Estimate e = ratio(columns, {4000, static_cast<std::uint64_t>(s)});
    widths += e.high - e.low;
    constexpr double t = 2.364624;  // 0.975 quantile of 7 degrees of freedom
    students += 2.0 * t * std::sqrt((squares - sum * sum / n) / (n - 1) / n);
    const Estimate by_t = mean_of_rounds(columns[0]);
    EXPECT_NEAR(by_t.high - by_t.low, 2.0 * t * std::sqrt((squares - sum * sum / n) / (n - 1) / n),
                1e-5);
    EXPECT_EQ(by_t.n, n);
  }
  EXPECT_NEAR(widths / students, 1.0, 0.1) << "without the expansion 0.79";
}

TEST(Bootstrap, IsRepeatableAndSeedsMatterLittle) {
  std::mt19937_64 random(3);
  const Sample sample = draw(random);
  const Estimate a = ratio(sample.by_prompt);
  const Estimate b = ratio(sample.by_prompt);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  const Estimate c = ratio(sample.by_prompt, {2000, 99});
  EXPECT_NE(a.low, c.low);
  // An end's standard error with 2000 resamples is near 0.06 of the interval's standard deviation.
  EXPECT_NEAR(a.low, c.low, 0.1 * (a.high - a.low));
  EXPECT_LT(a.low, a.value);
  EXPECT_GT(a.high, a.value);
}

TEST(Bootstrap, WithoutDataThereIsNoNumber) {
  const std::vector<std::vector<double>> none = {{}, {}};
  EXPECT_TRUE(std::isnan(ratio(none).value));
  const std::vector<std::vector<double>> zeros(2, std::vector<double>(6, 0.0));
  EXPECT_TRUE(std::isnan(ratio(zeros).value));
  // Four prompts say too little about others, five enough.
  const std::vector<std::vector<double>> four = {{6, 2, 3, 7}, {2, 1, 1, 2}};
  EXPECT_EQ(ratio(four).value, 3.0);
  EXPECT_TRUE(std::isnan(ratio(four).low));
  EXPECT_EQ(ratio(four).n, 4);
  const std::vector<std::vector<double>> five = {{6, 2, 3, 7, 3}, {2, 1, 1, 2, 1}};
  EXPECT_LT(ratio(five).low, 3.0);
  // Resamples without a denominator are left out.
  const std::vector<std::vector<double>> some = {{6, 0, 0, 0, 0}, {2, 0, 0, 0, 0}};
  EXPECT_EQ(ratio(some).low, 3.0);
  EXPECT_TRUE(std::isnan(mean_of_rounds(std::vector<double>{1.0, 2.0}).low));
  EXPECT_EQ(mean_of_rounds(std::vector<double>{1.0, 2.0}).value, 1.5);
}

// Holm's own steps: m p of the least, then (m - 1) p of the next, never below one before.
TEST(Holm, Adjusts) {
  const double nan = std::nan("");
  const std::vector<double> p = {0.04, 0.01, nan, 0.03, 0.9};
  const std::vector<double> adjusted = holm_adjusted(p);
  EXPECT_DOUBLE_EQ(adjusted[1], 4 * 0.01);
  EXPECT_DOUBLE_EQ(adjusted[3], 3 * 0.03);
  EXPECT_DOUBLE_EQ(adjusted[0], 3 * 0.03) << "2 * 0.04 is less than the one before";
  EXPECT_DOUBLE_EQ(adjusted[4], 0.9);
  EXPECT_TRUE(std::isnan(adjusted[2]));
}

}  // namespace
}  // namespace coppice::study
