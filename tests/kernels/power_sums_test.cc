#include "kernels/power_sums.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <span>
#include <vector>

namespace coppice {
namespace {

PowerSums sums_of(std::span<const float> scores, float power) {
  PowerSums sums = {0.0f, 0.0f, 0.0f, 0.0f};
  for (const float score : scores) sums.largest = std::max(sums.largest, score);
  if (!(sums.largest >= least_ratio)) return {0.0f, 0.0f, 0.0f, 0.0f};
  for (const float score : scores) {
    const float ratio = score / sums.largest;
    if (!(ratio >= least_ratio)) continue;
    const float x = power * std::log(ratio), weight = std::exp(x);
    sums.sum += weight;
    sums.first += x * weight;
    sums.second += x * x * weight;
  }
  return sums;
}

PowerSums joined_parts(std::span<const float> scores, std::size_t part, float power,
                       std::size_t left_out) {
  PowerSums sums = {0.0f, 0.0f, 0.0f, 0.0f};
  for (std::size_t begin = 0; begin < scores.size(); begin += part) {
    PowerSums of_part =
        sums_of(scores.subspan(begin, std::min(part, scores.size() - begin)), power);
    if (begin / part == left_out) of_part.sum = 0.0f;
    sums = joined(sums, of_part, power);
  }
  return sums;
}

// However a row is cut, its moments are those of the whole; parts may hold nothing, or nothing that
// counts beside others.
TEST(PowerSums, JoinToTheWholeRows) {
  constexpr std::size_t none = ~std::size_t{0};
  std::mt19937_64 random(5);
  for (int trial = 0; trial < 30; ++trial) {
    const double spread = 0.5 + 3.0 * (trial % 6);
    std::normal_distribution<double> normal(0.0, spread);
    std::vector<float> scores(900);
    for (float& score : scores) score = static_cast<float>(std::exp(normal(random)));
    for (std::size_t i = 200; i < 300; ++i) scores[i] = 0.0f;
    for (std::size_t i = 400; i < 500; ++i) scores[i] *= 1e-30f;
    std::vector<double> maxima((scores.size() + 63) / 64);
    block_maxima(scores, {}, 64, maxima);
    for (const float power : {0.3f, 1.0f, 4.0f}) {
      const PowerMoments whole = power_moments(scores, {}, 64, maxima, static_cast<double>(power));
      for (const std::size_t part : {1, 7, 100, 899, 1000}) {
        const PowerMoments all = moments_of(joined_parts(scores, part, power, none));
        EXPECT_EQ(all.largest, whole.largest);
        EXPECT_NEAR(all.sum, whole.sum, 1e-5 * whole.sum);
        EXPECT_NEAR(all.mean, whole.mean, 1e-5 * (1.0 - whole.mean));
        EXPECT_NEAR(all.variance, whole.variance,
                    1e-5 * (1.0 + whole.variance + whole.mean * whole.mean));
      }
      const std::size_t first =
          static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
      const PowerMoments without = moments_of(joined_parts(scores, 100, power, first / 100));
      EXPECT_GT(std::abs(without.sum - whole.sum), 1e-2 * whole.sum);
    }
  }
}

TEST(PowerSums, OfNothing) {
  const PowerSums nothing = {0.0f, 0.0f, 0.0f, 0.0f};
  EXPECT_EQ(joined(nothing, nothing, 1.0f).sum, 0.0f);
  EXPECT_EQ(moments_of(nothing).sum, 0.0);
  const PowerSums one = {0.25f, 1.0f, 0.0f, 0.0f};
  for (const PowerSums& sums : {joined(one, nothing, 2.0f), joined(nothing, one, 2.0f)}) {
    EXPECT_EQ(sums.largest, 0.25f);
    EXPECT_EQ(sums.sum, 1.0f);
    EXPECT_EQ(moments_of(sums).variance, 0.0);
  }
}

}  // namespace
}  // namespace coppice
