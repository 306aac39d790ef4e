#include "kernels/logits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include "base/error.h"
#include "reference/naive_logits.h"

namespace coppice {
namespace {

constexpr float inf = std::numeric_limits<float>::infinity();

std::vector<float> random_logits(std::mt19937_64& random, std::size_t n, int kind) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(n);
  for (float& x : logits) {
    x = normal(random);
    if (kind == 1) x = std::round(x);  // many ties
    if (kind == 2) x = 1.25f;          // all equal
    if (kind == 3 && random() % 3 == 0) x = -inf;
    if (kind == 4 && random() % 5 == 0) x = std::nanf("");
    if (kind == 5) x = x * 40.0f;  // nearly one-hot
  }
  logits[random() % n] = 2.0f;  // at least one is finite
  return logits;
}

TEST(ProcessLogits, AgreesWithTheDefinitionForAllFilters) {
  std::mt19937_64 random(1);
  LogitsScratch scratch;
  int compared = 0, near_edges = 0;
  for (const std::size_t n : {1, 2, 3, 7, 16, 17, 63, 64, 65, 255, 1000, 4096, 5000}) {
    for (int kind = 0; kind < 6; ++kind) {
      const std::vector<float> logits = random_logits(random, n, kind);
      TokenCounts seen(static_cast<std::int64_t>(n));
      std::vector<bool> is_seen(n, false);
      for (std::size_t i = 0; i < n; i += 3) {
        seen.add(static_cast<TokenId>(i));
        is_seen[i] = true;
      }
      TokenCounts fresh(static_cast<std::int64_t>(n));
      std::vector<std::int32_t> times(n, 0);
      for (std::size_t i = 0; i < n; i += 5) {
        for (; times[i] < static_cast<std::int32_t>(1 + i % 3); ++times[i]) {
          fresh.add(static_cast<TokenId>(i));
        }
      }
      for (const double temperature : {0.0, 0.6, 1.0, 2.5}) {
        for (const int top_k : {0, 1, 2, 50, 1500}) {
          for (const double top_p : {1.0, 0.9, 0.3, 0.0}) {
            for (const double min_p : {0.0, 0.05, 1.0}) {
              const double penalty = random() % 2 == 0 ? 1.0 : 1.3;
              SamplingParams params{temperature, top_k, top_p, min_p, penalty};
              // One of the two at a time, and without rounding: equal ones stay equal.
              const auto terms = random() % 3;
              if (terms == 1) params.frequency_penalty = 0.5;
              if (terms == 2) params.presence_penalty = -0.75;
              const bool penalised = penalty != 1.0;
              bool near_edge = false;
              const std::vector<double> expected = testing::naive_process(
                  logits, params, penalised ? is_seen : std::vector<bool>(), &near_edge, times);
              std::vector<float> probs(n, -1.0f);
              process_logits(logits, params, &seen, scratch, probs, &fresh);
              ASSERT_EQ(argmax_logits(logits, params, &seen, &fresh),
                        static_cast<TokenId>(std::max_element(expected.begin(), expected.end()) -
                                             expected.begin()));
              ++compared;
              if (near_edge) {
                ++near_edges;
                continue;
              }
              double total = 0.0;
              for (std::size_t i = 0; i < n; ++i) {
                total += static_cast<double>(probs[i]);
                if (expected[i] > 0.0 && expected[i] < 1e-36) continue;  // float's edge
                ASSERT_EQ(probs[i] > 0.0f, expected[i] > 0.0)
                    << n << " kind " << kind << " token " << i << " T " << temperature << " k "
                    << top_k << " p " << top_p << " min " << min_p << " got " << probs[i]
                    << " expected " << expected[i];
                // exp of x / T: the argument's rounding, up to |x - max| / T * 2^-23, dominates.
                ASSERT_NEAR(probs[i], expected[i], expected[i] * 3e-5 + 1e-30);
              }
              ASSERT_NEAR(total, 1.0, 1e-6);
            }
          }
        }
      }
    }
  }
  std::cout << compared << " rows compared, " << near_edges
            << " with a filter's edge in rounding\n";
  EXPECT_LT(near_edges, compared / 20);
}

TEST(ProcessLogits, TiesAtAnEdgeKeepTheLowerId) {
  LogitsScratch scratch;
  std::vector<float> probs(300);
  const std::vector<float> flat(300, 0.5f);
  process_logits(flat, {1.0, 7, 1.0, 0.0, 1.0}, nullptr, scratch, probs);
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(probs[i] > 0.0f, i < 7) << i;
  process_logits(flat, {1.0, 0, 0.1, 0.0, 1.0}, nullptr, scratch, probs);
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(probs[i] > 0.0f, i < 30) << i;
  process_logits(flat, {1.0, 100, 0.5, 0.0, 1.0}, nullptr, scratch, probs);
  for (std::size_t i = 0; i < 300; ++i) EXPECT_EQ(probs[i] > 0.0f, i < 50) << i;
}

TEST(ProcessLogits, DependsOnTheRowAlone) {
  std::mt19937_64 random(3);
  const std::vector<float> logits = random_logits(random, 1021, 0);
  std::vector<float> expected(1021);
  LogitsScratch scratch, used;
  for (const SamplingParams& params :
       {SamplingParams{0.8}, SamplingParams{0.8, 40}, SamplingParams{0.8, 0, 0.9, 0.01}}) {
    process_logits(logits, params, nullptr, scratch, expected);
    for (std::size_t shift = 0; shift < 17; ++shift) {
      std::vector<float> moved(logits.size() + 17), probs(logits.size() + 17);
      std::copy(logits.begin(), logits.end(), moved.begin() + static_cast<std::ptrdiff_t>(shift));
      const std::span<float> out = std::span(probs).subspan((shift * 5) % 17, logits.size());
      process_logits(std::span(moved).subspan(shift, logits.size()), params, nullptr, used, out);
      ASSERT_TRUE(std::equal(expected.begin(), expected.end(), out.begin()));
    }
  }
}

TEST(ProcessLogits, ExtremeRows) {
  LogitsScratch scratch;
  std::vector<float> probs(3);
  const auto process = [&](std::vector<float> logits, double temperature) {
    process_logits(logits, {temperature}, nullptr, scratch, probs);
    return probs;
  };
  EXPECT_EQ(process({-inf, 3.0f, std::nanf("")}, 1.0), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(process({1.0f, inf, -2.0f}, 1.0), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(process({1.0f, 2.0f, 1.5f}, 1e-300), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(process({-3e38f, 3e38f, 0.0f}, 0.01), (std::vector<float>{0, 1, 0}));
  EXPECT_EQ(process({5.0f, 5.0f, 5.0f}, 0.0), (std::vector<float>{1, 0, 0}));
  const std::vector<float> flat = process({-1.0f, 1.0f, 0.5f}, 1e30);
  for (float prob : flat) EXPECT_NEAR(prob, 1.0 / 3.0, 1e-6);
  EXPECT_THROW(process({-inf, -inf, std::nanf("")}, 1.0), Error);
  EXPECT_THROW(process({inf, -inf, inf}, 1.0), Error);
  EXPECT_THROW(argmax_logits(std::vector<float>{-inf, -inf}, {}, nullptr), Error);
}

// What it says without a look at all entries is what the entries say.
TEST(TokenCounts, FindsWhatItHolds) {
  std::mt19937_64 random(3);
  for (const std::size_t vocab : {1u, 31u, 32u, 33u, 100u}) {
    TokenCounts counts(static_cast<std::int64_t>(vocab));
    std::vector<TokenId> held;
    for (int change = 0; change < 200; ++change) {
      if (held.empty() || random() % 3 != 0) {
        held.push_back(static_cast<TokenId>(random() % vocab));
        counts.add(held.back());
      } else {
        std::swap(held[random() % held.size()], held.back());
        counts.remove(held.back());
        held.pop_back();
      }
      const std::size_t begin = random() % (vocab + 1), end = random() % (vocab + 1);
      std::vector<std::pair<TokenId, std::int32_t>> expected, found;
      for (std::size_t t = 0; t < vocab; ++t) {
        const auto token = static_cast<TokenId>(t);
        const auto times = static_cast<std::int32_t>(std::ranges::count(held, token));
        ASSERT_EQ((counts.words()[t / 32] >> t % 32 & 1) != 0, times > 0);
        if (begin <= t && t < end && times > 0) expected.emplace_back(token, times);
      }
      counts.each(begin, end,
                  [&](TokenId token, std::int32_t count) { found.emplace_back(token, count); });
      ASSERT_EQ(found, expected) << begin << " to " << end;
    }
  }
}

TEST(SampleInverseCdf, IsTheInverseOfTheCdf) {
  std::mt19937_64 random(4);
  for (const std::size_t n : {1, 2, 5, 255, 256, 257, 4096, 200000}) {
    std::vector<float> probs(n, 0.0f);
    for (float& prob : probs) {
      if (random() % 2 == 0) prob = static_cast<float>(random() % 1000) / 1000.0f;
    }
    probs[n / 2] = 0.25f;
    double total = 0.0;
    for (float prob : probs) total += static_cast<double>(prob);
    for (int draw = 0; draw < 200; ++draw) {
      const double u = draw == 0 ? 0x1p-53 : draw == 1 ? 1.0 - 0x1p-53 : (draw - 0.37) / 201.0;
      const TokenId token = sample_inverse_cdf(probs, u);
      ASSERT_GT(probs[static_cast<std::size_t>(token)], 0.0f);
      double before = 0.0;
      for (std::size_t i = 0; i < static_cast<std::size_t>(token); ++i) {
        before += static_cast<double>(probs[i]);
      }
      const double slack = 1e-12 * total;
      ASSERT_LE(before, u * total + slack);
      ASSERT_GE(before + static_cast<double>(probs[static_cast<std::size_t>(token)]),
                u * total - slack);
    }
  }
  EXPECT_THROW(sample_inverse_cdf(std::vector<float>(10, 0.0f), 0.5), Error);
}

TEST(Residual, MassAndSampleFollowTheDefinition) {
  std::mt19937_64 random(5);
  for (const std::size_t n : {1, 3, 8, 31, 256, 1000}) {
    std::vector<float> target(n), draft(n);
    for (std::size_t i = 0; i < n; ++i) {
      target[i] = static_cast<float>(random() % 1000) / 1000.0f;
      draft[i] = static_cast<float>(random() % 1000) / 1000.0f;
    }
    for (const double scale : {0.0, 0.7, 1.0, 3.0, 1e6}) {
      double residual = 0.0, mass = 0.0;
      for (std::size_t i = 0; i < n; ++i) {
        residual +=
            std::max(0.0, static_cast<double>(target[i]) - scale * static_cast<double>(draft[i]));
        mass += static_cast<double>(draft[i]);
      }
      const ResidualMass got = residual_mass(target, draft, scale);
      EXPECT_NEAR(got.residual, residual, 1e-12 * (residual + 1.0));
      EXPECT_NEAR(got.draft, mass, 1e-12 * (mass + 1.0));
      for (double u : {1e-9, 0.2, 0.5, 0.999999}) {
        const TokenId token = sample_residual(target, draft, scale, u);
        if (residual == 0.0) {
          EXPECT_EQ(token, -1);
          continue;
        }
        const auto at = static_cast<std::size_t>(token);
        EXPECT_GT(static_cast<double>(target[at]) - scale * static_cast<double>(draft[at]), 0.0);
      }
    }
  }
  EXPECT_THROW(residual_mass(std::vector<float>(3), std::vector<float>(4), 1.0), Error);
}

TEST(BlockValues, FollowTheDefinition) {
  std::mt19937_64 random(6);
  std::vector<float> probs(333), noise(333);
  for (float& x : probs) x = static_cast<float>(random() % 1000) / 1000.0f;
  for (float& x : noise) x = static_cast<float>(random() % 1000 + 1) / 100.0f;
  std::vector<double> masses(6), maxima(6), products(6);
  block_masses(probs, 64, masses);
  block_maxima(probs, {}, 64, maxima);
  block_maxima(probs, noise, 64, products);
  std::size_t best = 0;
  for (std::size_t b = 0; b < 6; ++b) {
    double mass = 0.0, max = 0.0, product = 0.0;
    for (std::size_t i = b * 64; i < std::min<std::size_t>(333, b * 64 + 64); ++i) {
      mass += static_cast<double>(probs[i]);
      max = std::max(max, static_cast<double>(probs[i]));
      product = std::max(product, static_cast<double>(probs[i] * noise[i]));
      if (probs[i] * noise[i] > probs[best] * noise[best]) best = i;
    }
    EXPECT_NEAR(masses[b], mass, 1e-12);
    EXPECT_EQ(maxima[b], max);
    EXPECT_EQ(products[b], product);
  }
  EXPECT_EQ(argmax_product(probs, noise), static_cast<TokenId>(best));
}

}  // namespace
}  // namespace coppice
