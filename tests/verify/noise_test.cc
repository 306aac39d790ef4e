#include "kernels/noise.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/random.h"
#include "reference/statistics.h"

namespace coppice {
namespace {

TEST(Noise, IsTheInverseOfAnExponentialByTokenId) {
  std::vector<float> noise(1003), shorter(37);
  inverse_exponential_noise(1, 2, 3, noise);
  inverse_exponential_noise(1, 2, 3, shorter);
  std::vector<double> uniforms(1003);
  coupled_uniforms(1, 2, 3, 0, uniforms);
  for (std::size_t i = 0; i < noise.size(); ++i) {
    const double expected = -1.0 / std::log(uniforms[i]);
    EXPECT_NEAR(noise[i], expected, expected * 2e-7);
    if (i < shorter.size()) {
      EXPECT_EQ(noise[i], shorter[i]);
    }
  }
}

TEST(Noise, ArgmaxFollowsTheDistribution) {
  const std::vector<double> law{0.5, 0.3, 0.15, 0.05, 0.0};
  std::vector<std::int64_t> counts(law.size(), 0);
  std::vector<float> noise(law.size());
  for (std::uint64_t position = 0; position < 200000; ++position) {
    inverse_exponential_noise(11, 0, position, noise);
    std::size_t best = 0;
    for (std::size_t i = 1; i < law.size(); ++i) {
      if (law[i] * noise[i] > law[best] * noise[best]) best = i;
    }
    ++counts[best];
  }
  const testing::Fit fit = testing::compare(counts, law);
  EXPECT_TRUE(fit.fits) << fit.text();
}

TEST(NoiseCache, ReturnsTheRowOfItsKey) {
  NoiseCache cache(50, 4);
  std::vector<float> expected(50);
  for (const std::uint64_t position : {0, 1, 2, 3, 1, 5, 1, 5, 9, 0}) {
    for (const std::uint64_t sequence : {7, 8}) {
      inverse_exponential_noise(6, sequence, position, expected);
      const auto row = cache.row(6, sequence, position);
      EXPECT_TRUE(std::equal(expected.begin(), expected.end(), row.begin(), row.end()));
    }
  }
  // A kept row is the same memory.
  EXPECT_EQ(cache.row(6, 8, 9).data(), cache.row(6, 8, 9).data());
}

}  // namespace
}  // namespace coppice
