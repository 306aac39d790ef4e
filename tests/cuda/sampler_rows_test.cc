// Distributions of rows, by their scores, against the definition in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <iostream>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "base/error.h"
#include "cuda/sampler_rig.h"
#include "reference/sampling_reference.h"

namespace coppice::sampler_rows_test {
namespace {

using testing::GuardedArray;
using testing::infinity;
using testing::Law;
using testing::random_logits;

class SamplerRows : public testing::SamplerTest {};

class SamplerRowsByVocabulary : public testing::SamplerTest,
                                public ::testing::WithParamInterface<std::int32_t> {};

constexpr std::int32_t score_rows = 512;

/// All tokens of a small vocabulary; of a large one those near the cut, where filters may go
/// wrong, the most probable and random ones.
std::vector<TokenId> interesting_tokens(std::mt19937_64& random, const std::vector<float>& logits,
                                        const Law& law) {
  const auto vocab = static_cast<TokenId>(logits.size());
  std::vector<TokenId> all(logits.size());
  std::iota(all.begin(), all.end(), 0);
  if (vocab <= 100) return all;
  std::vector<TokenId> order;
  for (const TokenId t : all) {
    if (law.probs[static_cast<std::size_t>(t)] > 0.0) order.push_back(t);
  }
  const auto kept = static_cast<std::ptrdiff_t>(order.size());
  std::erase_if(all, [&](TokenId t) { return law.probs[static_cast<std::size_t>(t)] > 0.0; });
  const auto by_logit = [&](TokenId a, TokenId b) {
    const float x = logits[static_cast<std::size_t>(a)], y = logits[static_cast<std::size_t>(b)];
    return x > y || (x == y && a < b) || (std::isnan(y) && !std::isnan(x));
  };
  std::set<TokenId> chosen{0, vocab - 1};
  const auto take = [&](std::vector<TokenId>& from, std::ptrdiff_t first, std::ptrdiff_t count) {
    const auto size = static_cast<std::ptrdiff_t>(from.size());
    first = std::clamp<std::ptrdiff_t>(first, 0, size);
    count = std::min(count, size - first);
    if (count <= 0) return;
    std::nth_element(from.begin(), from.begin() + first, from.end(), by_logit);
    std::partial_sort(from.begin() + first, from.begin() + first + count, from.end(), by_logit);
    chosen.insert(from.begin() + first, from.begin() + first + count);
  };
  std::erase_if(all, [&](TokenId t) { return std::isnan(logits[static_cast<std::size_t>(t)]); });
  take(order, 0, 60);
  take(order, kept - 60, 60);
  take(all, 0, 60);
  for (int i = 0; i < 60; ++i) chosen.insert(static_cast<TokenId>(random() % logits.size()));
  return {chosen.begin(), chosen.end()};
}

TEST_P(SamplerRowsByVocabulary, AgreeWithTheDefinitionForAllFilters) {
  const std::int32_t vocab = GetParam();
  std::mt19937_64 random(static_cast<std::uint64_t>(vocab));
  const auto sampler = make_sampler(vocab, vocab, score_rows, 1);
  int compared = 0, near_edges = 0;
  double worst = 0.0;
  const int draws = vocab <= 1000 ? 40 : vocab <= 5000 ? 20 : 8;
  for (int kind = 0; kind < 7; ++kind) {
    const std::vector<float> logits = random_logits(random, static_cast<std::size_t>(vocab), kind);
    // Rows need not be aligned.
    const GuardedArray<float> on_device(logits, random() % 4);
    for (int i = 0; i < draws; ++i) {
      const auto one_of = [&](auto... values) {
        const double all[] = {static_cast<double>(values)...};
        return all[random() % std::size(all)];
      };
      SamplingParams params;
      params.temperature = one_of(0.0, 0.3, 0.6, 1.0, 2.5, 30.0);
      params.top_k = static_cast<std::int32_t>(one_of(0, 0, 1, 2, 50, 1000, 1500, vocab - 1));
      params.top_p = one_of(1.0, 1.0, 0.999, 0.9, 0.3, 0.0);
      params.min_p = one_of(0.0, 0.0, 0.05, 1.0);
      const Law law = testing::reference_law(logits, params);
      ++compared;
      if (law.near_edge) {
        ++near_edges;
        continue;
      }
      const std::vector<TokenId> tokens = interesting_tokens(random, logits, law);
      const std::vector<float> scores =
          score(*sampler, tokens, params, on_device.data(), score_rows);
      for (std::size_t k = 0; k < tokens.size(); ++k) {
        const auto token = static_cast<std::size_t>(tokens[k]);
        const auto got = static_cast<double>(scores[k]);
        const double expected = law.probs[token];
        if (expected > 0.0 && expected < 1e-36) continue;  // float's edge
        ASSERT_EQ(got > 0.0, expected > 0.0)
            << vocab << " kind " << kind << " token " << token << " T " << params.temperature
            << " k " << params.top_k << " p " << params.top_p << " min " << params.min_p << " got "
            << got << " expected " << expected;
        ASSERT_NEAR(got, expected, law.error[token])
            << vocab << " kind " << kind << " token " << token << " T " << params.temperature
            << " k " << params.top_k << " p " << params.top_p << " min " << params.min_p;
        if (law.error[token] > 0.0) {
          worst = std::max(worst, std::abs(got - expected) / law.error[token]);
        }
      }
    }
    EXPECT_TRUE(on_device.guards_intact());
  }
  std::cout << compared << " rows compared, " << near_edges
            << " with a filter's edge in rounding; largest error " << worst << " of its bound\n";
  EXPECT_LT(near_edges, std::max(compared / 10, 3));
}

INSTANTIATE_TEST_SUITE_P(All, SamplerRowsByVocabulary,
                         ::testing::Values(2, 3, 31, 32, 33, 100, 1000, 4096, 32000, 32003, 128256,
                                           256000, 327680),
                         ::testing::PrintToStringParamName());

TEST_F(SamplerRows, TiesAtAnEdgeKeepTheLowerId) {
  for (const std::int32_t vocab : {300, 9000, 40000}) {
    const auto sampler = make_sampler(vocab, vocab, 64, 1);
    const GuardedArray<float> flat(std::vector<float>(static_cast<std::size_t>(vocab), 0.5f));
    const auto kept = [&](const SamplingParams& params, std::int32_t edge) {
      for (TokenId t = std::max(0, edge - 3); t < std::min(vocab, edge + 3); ++t) {
        const float prob = score(*sampler, {{t}}, params, flat.data(), 1)[0];
        EXPECT_EQ(prob > 0.0f, t < edge) << t << " of " << vocab;
        if (t < edge) {
          EXPECT_NEAR(prob, 1.0 / edge, 1e-6 / edge);
        }
      }
    };
    kept({1.0, 7, 1.0, 0.0, 1.0}, 7);
    kept({1.0, 0, 0.1, 0.0, 1.0}, vocab / 10);
    kept({1.0, 100, 0.5, 0.0, 1.0}, 50);
    kept({1.0, 200, 0.5, 0.5, 1.0}, 100);
    kept({1.0, vocab - 1, 1.0, 0.0, 1.0}, vocab - 1);
  }
}

TEST_F(SamplerRows, BothZerosAreEqual) {
  const auto sampler = make_sampler(6, 6, 6, 1);
  const GuardedArray<float> logits({-0.0f, 0.0f, -1.0f, -0.0f, 0.0f, -2.0f});
  const std::vector<TokenId> all{0, 1, 2, 3, 4, 5};
  for (int k = 1; k <= 4; ++k) {
    const auto scores = score(*sampler, all, {1.0, k}, logits.data(), 6);
    std::vector<float> expected(6, 0.0f);
    const TokenId order[] = {0, 1, 3, 4};
    for (int i = 0; i < k; ++i) {
      expected[static_cast<std::size_t>(order[i])] = 1.0f / static_cast<float>(k);
    }
    EXPECT_EQ(scores, expected) << k;
  }
  EXPECT_EQ(score(*sampler, all, {0.0}, logits.data(), 6), (std::vector<float>{1, 0, 0, 0, 0, 0}));
}

TEST_F(SamplerRows, ExtremeRows) {
  const auto sampler = make_sampler(3, 3, 3, 1);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const auto process = [&](const std::vector<float>& logits, const SamplingParams& params) {
    const GuardedArray<float> on_device(logits);
    return score(*sampler, std::vector<TokenId>{0, 1, 2}, params, on_device.data(), 3);
  };
  for (const SamplingParams& filters : {SamplingParams{1.0}, SamplingParams{1.0, 2},
                                        SamplingParams{1.0, 0, 0.9}, SamplingParams{1.0, 2, 0.9}}) {
    const auto at = [&](double temperature) {
      SamplingParams params = filters;
      params.temperature = temperature;
      return params;
    };
    EXPECT_EQ(process({-infinity, 3.0f, nan}, at(1.0)), (std::vector<float>{0, 1, 0}));
    EXPECT_EQ(process({1.0f, infinity, -2.0f}, at(1.0)), (std::vector<float>{0, 1, 0}));
    EXPECT_EQ(process({1.0f, 2.0f, 1.5f}, at(1e-300)), (std::vector<float>{0, 1, 0}));
    EXPECT_EQ(process({-3e38f, 3e38f, 0.0f}, at(0.01)), (std::vector<float>{0, 1, 0}));
    EXPECT_EQ(process({5.0f, 5.0f, 5.0f}, at(0.0)), (std::vector<float>{1, 0, 0}));
    for (const double temperature : {0.0, 1.0}) {
      EXPECT_THROW(process({-infinity, -infinity, nan}, at(temperature)), Error);
      EXPECT_THROW(process({infinity, -infinity, infinity}, at(temperature)), Error);
      EXPECT_NO_THROW(process({infinity, -infinity, FLT_MAX}, at(temperature)));
    }
  }
  for (const double temperature : {1e30, 1e300}) {
    for (const float prob : process({-1.0f, 1.0f, 0.5f}, {temperature})) {
      EXPECT_NEAR(prob, 1.0 / 3.0, 1e-6);
    }
  }
}

TEST_F(SamplerRows, TokensBeyondTheCommonVocabularyScoreNothing) {
  std::mt19937_64 random(8);
  // The draft knows more tokens than the target, or fewer: only common ones count.
  for (const auto& [target, draft] : {std::pair{20, 30}, {30, 20}}) {
    const auto sampler = make_sampler(target, draft, 40, 1);
    std::vector<float> logits = random_logits(random, static_cast<std::size_t>(draft), 0);
    const GuardedArray<float> on_device(logits);
    logits.resize(20);
    const Law law = testing::reference_law(logits, {0.7});
    std::vector<TokenId> tokens(30);
    std::iota(tokens.begin(), tokens.end(), 0);
    const auto scores = score(*sampler, tokens, {0.7}, on_device.data(), 40);
    for (std::size_t t = 0; t < 20; ++t) EXPECT_NEAR(scores[t], law.probs[t], law.error[t]);
    for (std::size_t t = 20; t < 30; ++t) EXPECT_EQ(scores[t], 0.0f);
  }
}

TEST_F(SamplerRows, DependOnTheRowAlone) {
  constexpr std::int32_t vocab = 5021;
  std::mt19937_64 random(3);
  const std::vector<float> logits = random_logits(random, vocab, 0);
  const auto sampler = make_sampler(vocab, vocab, 64, 1);
  std::vector<TokenId> tokens(64);
  for (TokenId& token : tokens) token = static_cast<TokenId>(random() % vocab);
  for (const SamplingParams& params :
       {SamplingParams{0.8}, SamplingParams{0.8, 40}, SamplingParams{0.8, 0, 0.9, 0.01}}) {
    const GuardedArray<float> aligned(logits);
    const std::vector<float> expected = score(*sampler, tokens, params, aligned.data(), 64);
    for (std::size_t shift = 1; shift < 4; ++shift) {
      const GuardedArray<float> moved(logits, shift);
      EXPECT_EQ(score(*sampler, tokens, params, moved.data(), 7 * shift), expected);
    }
  }
}

TEST_F(SamplerRows, RefusesWhatItWasNotMadeFor) {
  EXPECT_THROW(make_sampler(1 << 20, 1 << 20, 4, 4), Error);
  const auto sampler = make_sampler(10, 0, 4, 0);
  EXPECT_THROW(sampler->stage_score(std::vector<TokenId>{1}, {1.0}), Error);
  const DrawRow row;
  testing::OneDraw batch;
  batch.params.temperature = 1.0;
  batch.rows = {&row, 1};
  EXPECT_THROW(sampler->stage_draw(batch.batch()), Error);
  const auto other = make_sampler(10, 10, 2, 2);
  EXPECT_THROW(other->stage_score(std::vector<TokenId>{1, 2, 3}, {1.0}), Error);
  EXPECT_THROW(other->draw(nullptr, 10, 2), Error);
  DeviceVerdict verdict;
  EXPECT_THROW(other->collect_verdicts({&verdict, 1}), Error);
}

}  // namespace
}  // namespace coppice::sampler_rows_test
