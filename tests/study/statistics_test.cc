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

double ratio(std::span<const double> sums) { return sums[0] / sums[1]; }

TEST(Bootstrap, IntervalsCoverTheTruth) {
  constexpr int samples = 500;
  std::mt19937_64 random(7);
  int covered = 0, covered_by_texts = 0;
  for (int s = 0; s < samples; ++s) {
    const Sample sample = draw(random);
    const BootstrapOptions options{400, static_cast<std::uint64_t>(s)};
    const Estimate right = bootstrap(sample.by_prompt, ratio, options);
    const Estimate wrong = bootstrap(sample.by_text, ratio, options);
    covered += right.low <= truth && truth <= right.high ? 1 : 0;
    covered_by_texts += wrong.low <= truth && truth <= wrong.high ? 1 : 0;
    EXPECT_NEAR(right.value, wrong.value, 1e-9);
  }
  // The percentile interval of 40 skewed prompts covers 0.93 to 0.95. Four standard deviations of a
  // binomial share of 500 at 0.94 are 0.042.
  EXPECT_GT(covered, static_cast<int>(samples * 0.888));
  EXPECT_LT(covered, static_cast<int>(samples * 0.99));
  // The planted fault: texts of one prompt taken for independent. Theory: about 0.5.
  EXPECT_LT(covered_by_texts, static_cast<int>(samples * 0.7));
}

TEST(Bootstrap, IsRepeatableAndSeedsMatterLittle) {
  std::mt19937_64 random(3);
  const Sample sample = draw(random);
  const Estimate a = bootstrap(sample.by_prompt, ratio);
  const Estimate b = bootstrap(sample.by_prompt, ratio);
  EXPECT_EQ(a.low, b.low);
  EXPECT_EQ(a.high, b.high);
  const Estimate c = bootstrap(sample.by_prompt, ratio, {2000, 99});
  EXPECT_NE(a.low, c.low);
  // An end's standard error with 2000 resamples is near 0.06 of the interval's standard deviation.
  EXPECT_NEAR(a.low, c.low, 0.1 * (a.high - a.low));
  EXPECT_LT(a.low, a.value);
  EXPECT_GT(a.high, a.value);
}

TEST(Bootstrap, WithoutDataThereIsNoNumber) {
  const std::vector<std::vector<double>> none = {{}, {}};
  EXPECT_TRUE(std::isnan(bootstrap(none, ratio).value));
  const std::vector<std::vector<double>> zeros = {{0, 0}, {0, 0}};
  EXPECT_TRUE(std::isnan(bootstrap(zeros, ratio).value));
  const std::vector<std::vector<double>> one = {{6}, {2}};
  EXPECT_EQ(bootstrap(one, ratio).value, 3.0);
  EXPECT_TRUE(std::isnan(bootstrap(one, ratio).low)) << "one prompt says nothing about others";
  // Resamples without a denominator are left out.
  const std::vector<std::vector<double>> half = {{6, 0}, {2, 0}};
  EXPECT_EQ(bootstrap(half, ratio).low, 3.0);
}

}  // namespace
}  // namespace coppice::study
