#include "kernels/noise.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "kernels/exponential_noise.h"
#include "reference/statistics.h"

namespace coppice {
namespace {

/// kernels/exponential_noise.h, operation by operation. (Of floats, products are exact in double
/// and sums are rounded to float as if only once.)
float defined_noise(double u) {
  namespace define = exponential_noise;
  const auto product = [](float a, float b) {
    return static_cast<float>(static_cast<double>(a) * static_cast<double>(b));
  };
  const auto sum = [](float a, float b) {
    return static_cast<float>(static_cast<double>(a) + static_cast<double>(b));
  };
  const bool near_one = u > define::two_thirds;
  const auto v = static_cast<float>(near_one ? 1.0 - u : u);
  const auto bits = std::bit_cast<std::int32_t>(v);
  const std::int32_t over = bits - define::two_thirds_bits;
  const std::int32_t e = (over - ((over % (1 << 23)) + (1 << 23)) % (1 << 23)) / (1 << 23);
  const float r = near_one ? -v : sum(std::ldexp(v, -e), -1.0f);
  float p = define::c7;
  for (const float c : define::rest) p = std::fma(p, r, c);
  const float log_u = std::fma(near_one ? 0.0f : static_cast<float>(e), define::log_2,
                               sum(r, product(product(r, r), p)));
  return 1.0f / -log_u;
}

/// Runs `check` under every instruction set that this build and processor have.
template <typename Check>
void under_each_instruction_set(Check check) {
  for (const std::int64_t target : hwy::SupportedAndGeneratedTargets()) {
    SCOPED_TRACE(hwy::TargetName(target));
    hwy::SetSupportedTargetsForTest(target);
    hwy::GetChosenTarget().Update(target);
    check();
  }
  hwy::SetSupportedTargetsForTest(0);
  hwy::GetChosenTarget().DeInit();
}

TEST(Noise, IsTheSameUnderEveryInstructionSet) {
  under_each_instruction_set([] {
    std::int64_t different = 0;
    for (const std::size_t size : {1, 5, 37, 64, 1003, 40000}) {
      std::vector<double> uniforms(size);
      std::vector<float> noise(size + 1, -7.0f);
      for (const std::uint64_t position : {std::uint64_t{0}, ~std::uint64_t{0}}) {
        coupled_uniforms(~size, 1 + position, position, 0, uniforms);
        inverse_exponential_noise(~size, 1 + position, position, std::span(noise).first(size));
        for (std::size_t i = 0; i < size; ++i) {
          different += static_cast<int>(noise[i] != defined_noise(uniforms[i]));
        }
      }
      EXPECT_EQ(noise.back(), -7.0f);
    }
    EXPECT_EQ(different, 0);
  });
}

// Texts of a seed stay what they were.
TEST(Noise, IsPartOfTheFormat) {
  std::vector<float> noise(8);
  inverse_exponential_noise(1, 2, 3, noise);
  EXPECT_EQ(noise,
            (std::vector<float>{0x1.d99bc2p+0f, 0x1.9108d6p-1f, 0x1.016dfcp+3f, 0x1.4504e6p+2f,
                                0x1.038962p+2f, 0x1.387d5cp-1f, 0x1.e8f70ep-1f, 0x1.766d98p+0f}));
}

TEST(Noise, IsTheInverseOfAnExponentialByTokenId) {
  std::vector<float> noise(100003), shorter(37);
  inverse_exponential_noise(1, 2, 3, noise);
  inverse_exponential_noise(1, 2, 3, shorter);
  std::vector<double> uniforms(noise.size());
  coupled_uniforms(1, 2, 3, 0, uniforms);
  for (std::size_t i = 0; i < noise.size(); ++i) {
    const double expected = -1.0 / std::log(uniforms[i]);
    EXPECT_NEAR(noise[i], expected, expected * 5e-7);
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

// As steps of texts side by side ask: each for some positions of its own, then the next text, a
// little further on from step to step.
std::int64_t computed_by_steps(NoiseCache& cache, std::int32_t texts, std::int32_t steps,
                               std::uint64_t depth) {
  std::vector<float> expected(16);
  for (std::int32_t step = 0; step < steps; ++step) {
    for (const bool drafts : {true, false}) {
      for (std::int32_t text = 0; text < texts; ++text) {
        const std::uint64_t seed = static_cast<std::uint64_t>(text % 2),
                            sequence = static_cast<std::uint64_t>(text / 2);
        for (std::uint64_t ahead = 0; ahead < (drafts ? depth : depth / 2); ++ahead) {
          const std::uint64_t position = 100 + 2 * static_cast<std::uint64_t>(step) + ahead;
          const auto row = cache.row(seed, sequence, position);
          inverse_exponential_noise(seed, sequence, position, expected);
          EXPECT_TRUE(std::equal(expected.begin(), expected.end(), row.begin()));
        }
      }
    }
  }
  return cache.computed();
}

TEST(NoiseCache, TextsDoNotTakeEachOthersRows) {
  constexpr std::int32_t steps = 20;
  constexpr std::uint64_t depth = 12;
  NoiseCache alone(16);
  const std::int64_t of_one = computed_by_steps(alone, 1, steps, depth);
  EXPECT_EQ(of_one, 2 * (steps - 1) + 12);  // each position once
  NoiseCache many(16, 32, 8);
  EXPECT_EQ(computed_by_steps(many, 8, steps, depth), 8 * of_one);
  // A ninth takes the place of a text that is asked for later: nobody finds anything.
  NoiseCache fewer(16, 32, 8);
  EXPECT_EQ(computed_by_steps(fewer, 9, steps, depth), 9 * steps * 18);
}

TEST(NoiseCache, MemoryIsBounded) {
  constexpr std::size_t most = std::size_t{128} << 20;
  EXPECT_EQ(NoiseCache(4096, 32, 1).most_bytes(), 32u * 4096 * 4);
  EXPECT_EQ(NoiseCache(4096, 32, 64).most_bytes(), 64u * 32 * 4096 * 4);
  EXPECT_EQ(NoiseCache(128256, 32, 1).most_bytes(), 32u * 128256 * 4);
  for (const std::int32_t texts : {64, 1024}) {
    for (const std::int64_t vocab : {32000, 128256, 262144}) {
      EXPECT_LE(NoiseCache(vocab, 32, texts).most_bytes(), most) << texts << ", " << vocab;
      EXPECT_GT(NoiseCache(vocab, 32, texts).most_bytes(), most / 2) << texts << ", " << vocab;
    }
  }
  // One text has all of its rows, however large.
  EXPECT_EQ(NoiseCache(1 << 22, 32, 64).most_bytes(), std::size_t{32} << 24);
}

}  // namespace
}  // namespace coppice
