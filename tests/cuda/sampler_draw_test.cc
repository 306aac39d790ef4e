// Children drawn on the GPU, against the definition in double with the same noise.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "cuda/noise_probe.h"
#include "cuda/sampler_rig.h"
#include "kernels/noise.h"
#include "reference/sampling_reference.h"
#include "reference/statistics.h"

namespace coppice::sampler_draw_test {
namespace {

using testing::GuardedArray;
using testing::infinity;
using testing::Law;
using testing::random_logits;

constexpr std::size_t most_children = cuda::drawn_children;

std::size_t index_of(TokenId token) { return static_cast<std::size_t>(token); }

class SamplerDraw : public testing::SamplerTest {
 protected:
  static testing::OneDraw batch_of(const StepKey& key, const SamplingParams& params,
                                   AcceptanceRule rule, const std::vector<DrawRow>& rows) {
    testing::OneDraw batch;
    batch.key = key;
    batch.params = params;
    batch.rule = rule;
    batch.rows = rows;
    return batch;
  }

  /// Noise of the batch's row, 1 where there is none.
  static std::vector<double> noise_of(const testing::OneDraw& batch, std::size_t row,
                                      std::size_t vocab) {
    if (batch.rule == AcceptanceRule::greedy) return std::vector<double>(vocab, 1.0);
    if (batch.rule == AcceptanceRule::coupled) {
      return testing::coupled_noise(batch.key, batch.rows[row].depth, vocab);
    }
    return testing::sampled_noise(batch.key, batch.rows[row].node_key, vocab);
  }

  /// Children in the order of D / E: exactly, but for neighbours that rounding may exchange; and
  /// none is missing that surely comes before the last.
  static void expect_order(const Children& children, const Law& law,
                           const std::vector<double>& noise, bool complete) {
    const auto score = [&](TokenId t) { return law.probs[index_of(t)] / noise[index_of(t)]; };
    const auto slack = [&](TokenId t) {
      return law.error[index_of(t)] / noise[index_of(t)] + score(t) * testing::noise_error;
    };
    std::set<TokenId> seen;
    for (std::size_t i = 0; i < children.size(); ++i) {
      const TokenId t = children[i].token;
      ASSERT_TRUE(seen.insert(t).second) << "token " << t << " twice";
      ASSERT_NEAR(children[i].prob, law.probs[index_of(t)], law.error[index_of(t)]);
      ASSERT_GT(children[i].prob, 0.0f);
      if (i == 0) continue;
      const TokenId before = children[i - 1].token;
      ASSERT_GE(score(before) + slack(before) + slack(t), score(t)) << "at rank " << i;
    }
    const double last = complete || children.empty()
                            ? 0.0
                            : score(children.back().token) + slack(children.back().token);
    for (std::size_t t = 0; t < law.probs.size(); ++t) {
      const auto token = static_cast<TokenId>(t);
      // Scores below float's range are none.
      if (law.probs[t] < 1e-35 || seen.count(token) != 0) continue;
      ASSERT_FALSE(complete) << "token " << t << " is missing";
      ASSERT_LE(score(token), last + slack(token)) << "token " << t << " is missing";
    }
  }
};

class SamplerDrawByVocabulary : public SamplerDraw,
                                public ::testing::WithParamInterface<std::int32_t> {};

TEST_P(SamplerDrawByVocabulary, FollowsTheNoise) {
  const std::int32_t vocab = GetParam();
  const auto size = static_cast<std::size_t>(vocab);
  std::mt19937_64 random(static_cast<std::uint64_t>(vocab) + 1);
  const std::vector<DrawRow> rows{{2, 0, 0, root_node_key},
                                  {0, 0, 3, child_node_key(root_node_key, 0)},
                                  {4, 0, 1, child_node_key(root_node_key, 7)}};
  const auto sampler = make_sampler(vocab, vocab, 5, 5);
  for (const SamplingParams& params :
       {SamplingParams{1.0}, SamplingParams{0.6, 40}, SamplingParams{1.0, 0, 0.9},
        SamplingParams{1.3, 0, 1.0, 0.02}, SamplingParams{0.8, 500, 0.99, 0.001}}) {
    for (const int kind : {0, 3, 4, 5, 6}) {
      std::vector<float> logits;
      std::vector<Law> laws;
      // One more column than the vocabulary: rows are aligned differently.
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const std::vector<float> row = random_logits(random, size, kind);
        laws.push_back(testing::reference_law(row, params));
        logits.insert(logits.end(), row.begin(), row.end());
        logits.push_back(infinity);
      }
      logits.resize(5 * (size + 1), 0.0f);
      const GuardedArray<float> on_device(logits);
      const StepKey key{random(), random() % 5, random() % 100, random() % 1000};
      for (const AcceptanceRule rule :
           {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
        SCOPED_TRACE(::testing::Message() << "kind " << kind << " rule " << static_cast<int>(rule)
                                          << " k " << params.top_k << " p " << params.top_p);
        const testing::OneDraw batch = batch_of(key, params, rule, rows);
        const auto drawn = draw(*sampler, batch, on_device.data(), vocab + 1, 2);
        for (std::size_t r = 0; r < rows.size(); ++r) {
          if (laws[r].near_edge) continue;
          expect_order(drawn[r], laws[r], noise_of(batch, r, size),
                       drawn[r].size() < most_children);
        }
      }
    }
  }
}

TEST_P(SamplerDrawByVocabulary, MoreContinuesUntilMassIsExhausted) {
  const std::int32_t vocab = GetParam();
  const auto size = static_cast<std::size_t>(vocab);
  std::mt19937_64 random(static_cast<std::uint64_t>(vocab) + 2);
  const auto sampler = make_sampler(vocab, vocab, 2, 3);
  const std::vector<DrawRow> rows{{1, 0, 0, 11}, {2, 0, 4, 12}};
  for (const AcceptanceRule rule :
       {AcceptanceRule::rejection, AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    for (const int kind : {0, 1, 2}) {
      const SamplingParams params{1.0, 300};
      std::vector<float> logits = random_logits(random, size, kind);
      const Law law = testing::reference_law(logits, params);
      ASSERT_FALSE(law.near_edge);
      const GuardedArray<float> on_device(logits);
      const testing::OneDraw batch = batch_of({5, 6, 7, 8}, params, rule, rows);
      auto drawn = draw(*sampler, batch, on_device.data(), 0);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        Children& all = drawn[r];
        for (std::size_t last = all.size(); last > 0 && last % most_children == 0;) {
          const auto next = sampler->more(batch, batch.rows[r], all.back().token);
          all.insert(all.end(), next.list.begin(), next.list.end());
          ASSERT_EQ(next.exhausted, next.list.size() < most_children);
          if (next.exhausted) break;
          last = all.size();
        }
        expect_order(all, law, noise_of(batch, r, size), true);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SamplerDrawByVocabulary,
                         ::testing::Values(2, 3, 31, 32, 33, 100, 1000, 8192, 8193, 32003, 128256,
                                           256000),
                         ::testing::PrintToStringParamName());

TEST_F(SamplerDraw, EqualProbabilitiesComeByRisingId) {
  for (const std::int32_t vocab : {40, 20000, 40000}) {
    const auto sampler = make_sampler(vocab, vocab, 1, 1);
    const GuardedArray<float> flat(std::vector<float>(static_cast<std::size_t>(vocab), -3.0f));
    const std::vector<DrawRow> rows{{0, 0, 0, 1}};
    const testing::OneDraw batch = batch_of({}, {1.0}, AcceptanceRule::greedy, rows);
    const auto first = draw(*sampler, batch, flat.data(), vocab)[0];
    ASSERT_EQ(first.size(), most_children);
    for (std::size_t i = 0; i < first.size(); ++i) EXPECT_EQ(index_of(first[i].token), i);
    const auto second = sampler->more(batch, batch.rows[0], first.back().token).list;
    ASSERT_EQ(second.size(), std::min<std::size_t>(32, static_cast<std::size_t>(vocab) - 32));
    for (std::size_t i = 0; i < second.size(); ++i) EXPECT_EQ(index_of(second[i].token), 32 + i);
  }
}

// What is declared is what score() says, bit for bit: one definition serves all kernels.
TEST_F(SamplerDraw, DeclaresWhatIsScored) {
  constexpr std::int32_t vocab = 12345;
  std::mt19937_64 random(9);
  const auto sampler = make_sampler(vocab, vocab, 32, 1);
  const GuardedArray<float> logits(random_logits(random, vocab, 0));
  const std::vector<DrawRow> rows{{0, 0, 0, 1}};
  for (const SamplingParams& params :
       {SamplingParams{0.7}, SamplingParams{1.0, 60}, SamplingParams{1.1, 0, 0.95, 0.001}}) {
    const auto children =
        draw(*sampler, batch_of({1, 2, 3, 4}, params, AcceptanceRule::rejection, rows),
             logits.data(), vocab)[0];
    std::vector<TokenId> tokens;
    for (const DeviceChild& child : children) tokens.push_back(child.token);
    const std::vector<float> scores = score(*sampler, tokens, params, logits.data(), 32);
    for (std::size_t i = 0; i < tokens.size(); ++i) EXPECT_EQ(children[i].prob, scores[i]);
  }
}

TEST_F(SamplerDraw, TokensBeyondTheTargetsVocabularyAreNotDrawn) {
  const auto sampler = make_sampler(21, 40, 1, 1);
  std::mt19937_64 random(10);
  std::vector<float> logits = random_logits(random, 40, 0);
  logits[30] = 50.0f;
  const GuardedArray<float> on_device(logits);
  logits.resize(21);
  const std::vector<DrawRow> rows{{0, 0, 0, 1}};
  const testing::OneDraw batch = batch_of({}, {1.0}, AcceptanceRule::rejection, rows);
  const auto children = draw(*sampler, batch, on_device.data(), 40)[0];
  EXPECT_EQ(children.size(), 21u);
  expect_order(children, testing::reference_law(logits, {1.0}), noise_of(batch, 0, 21), true);
}

// Text and path, the root excluded; a token that occurs in both is penalised once.
TEST_F(SamplerDraw, PenaltyFollowsThePath) {
  std::mt19937_64 random(11);
  const std::vector<TokenId> token{3, 5, 7, 9, 5, 40};
  const std::vector<std::int32_t> parent{-1, 0, 1, 1, 3, 2};
  for (const std::int32_t vocab : {45, 3000}) {
    const auto size = static_cast<std::size_t>(vocab);
    std::vector<std::int32_t> counts(size, 0);
    counts[3] = 1;  // the root stands in the text
    for (int i = 0; i < 12; ++i) counts[random() % size] += 2;
    counts[9] = 1;
    const TokenCounts held = testing::counted(counts);
    const PenaltyText text{&held, token, parent};
    const auto sampler = make_sampler(vocab, vocab, 8, 8);
    std::vector<DrawRow> rows;
    for (std::int32_t node = 0; node < 6; ++node) {
      rows.push_back({7 - node, node, 0, static_cast<std::uint64_t>(node)});
    }
    std::vector<float> logits;
    for (std::size_t r = 0; r < rows.size(); ++r) {
      const auto row = random_logits(random, size, 0);
      logits.insert(logits.end(), row.begin(), row.end());
    }
    const GuardedArray<float> on_device(logits);
    for (const SamplingParams& params :
         {SamplingParams{1.0, 0, 1.0, 0.0, 1.7}, SamplingParams{1.0, 30, 0.97, 0.0, 0.6}}) {
      testing::OneDraw batch = batch_of({1, 2, 3, 4}, params, AcceptanceRule::rejection, rows);
      batch.penalty = &text;
      const auto drawn = draw(*sampler, batch, on_device.data(), vocab);
      for (std::size_t r = 0; r < rows.size(); ++r) {
        std::vector<bool> seen(size);
        for (std::size_t t = 0; t < size; ++t) seen[t] = counts[t] > 0;
        for (std::size_t n = r; parent[n] >= 0; n = static_cast<std::size_t>(parent[n])) {
          seen[index_of(token[n])] = true;
        }
        const Law law =
            testing::reference_law(std::span(logits).subspan(r * size, size), params, seen);
        if (law.near_edge) continue;
        expect_order(drawn[r], law, noise_of(batch, r, size), drawn[r].size() < most_children);
      }
    }
    // The draft's own logits stay as they are.
    EXPECT_EQ(on_device.download(), logits);
  }
}

TEST_F(SamplerDraw, ReportsARowWithoutFiniteLogit) {
  const auto sampler = make_sampler(50, 50, 3, 3);
  std::vector<float> logits(150, 1.0f);
  std::fill(logits.begin() + 50, logits.begin() + 100, -infinity);
  const GuardedArray<float> on_device(logits);
  const std::vector<DrawRow> rows{{0, 0, 0, 1}, {1, 0, 0, 2}, {2, 0, 0, 3}};
  const testing::OneDraw batch = batch_of({}, {1.0}, AcceptanceRule::rejection, rows);
  EXPECT_THROW(draw(*sampler, batch, on_device.data(), 50), Error);
  EXPECT_EQ(draw(*sampler, batch, on_device.data(), 0).size(), 3u);
}

// Results that never come: the error says how far the batch got.
TEST_F(SamplerDraw, SaysHowFarABatchWithoutResultsGot) {
  const auto sampler = make_sampler(50, 50, 3, 3);
  const GuardedArray<float> logits(std::vector<float>(50, 1.0f));
  const std::vector<DrawRow> rows{{0, 0, 0, 1}, {1, 0, 0, 2}, {2, 0, 0, 3}};
  const testing::OneDraw batch = batch_of({}, {1.0}, AcceptanceRule::rejection, rows);
  EXPECT_EQ(draw(*sampler, batch, logits.data(), 0).size(), 3u);
  std::vector<DrawnChildren> drawn(2);
  const auto error = [&] {
    try {
      sampler->collect_draw(drawn);
    } catch (const Error& thrown) {
      return std::string(thrown.what());
    }
    return std::string();
  };
  testing::OneDraw next = batch;
  next.rows = std::span(rows).first(2);
  sampler->stage_draw(next.batch());
  const std::string asked =
      "CUDA: drawing children ended without results: batch 2 of 2 rows was asked for, ";
  EXPECT_EQ(error().find(asked + "the GPU had batch 1 of 3 rows, 0 of them counted, and told of " +
                         "batch 1 (1 by now)"),
            0u)
      << error();
  transfers_->send();
  EXPECT_EQ(error().find(asked + "the GPU had batch 2 of 2 rows, 0 of them counted, and told of " +
                         "batch 1 (1 by now)"),
            0u)
      << error();
  sampler->draw(logits.data(), 0, 2);
  EXPECT_EQ(error(), "");
}

// Over nodes, the first two children follow the law of sampling without replacement.
TEST_F(SamplerDraw, SamplesWithoutReplacement) {
  constexpr std::int32_t most_rows = 1024;
  for (const std::vector<float>& probs :
       {std::vector<float>{0.5f, 0.25f, 0.125f, 0.125f},
        std::vector<float>{0.97f, 0.01f, 0.0f, 0.01f, 0.01f}, std::vector<float>(6, 1.0f / 6.0f)}) {
    const std::size_t vocab = probs.size();
    std::vector<float> logits(vocab);
    for (std::size_t i = 0; i < vocab; ++i) logits[i] = std::log(probs[i]);
    std::vector<double> law(vocab * vocab, 0.0);
    for (std::size_t a = 0; a < vocab; ++a) {
      for (std::size_t b = 0; b < vocab; ++b) {
        const double pa = probs[a], pb = probs[b];
        if (a != b && pa > 0.0) law[a * vocab + b] = pa * pb / (1.0 - pa);
      }
    }
    const GuardedArray<float> on_device(logits);
    const auto sampler = make_sampler(static_cast<std::int64_t>(vocab),
                                      static_cast<std::int64_t>(vocab), most_rows, most_rows);
    const auto count = [&](DeviceFault fault) {
      sampler->plant(fault);
      std::vector<std::int64_t> counts(law.size(), 0);
      std::vector<DrawRow> rows(most_rows);
      for (std::uint64_t step = 0; step < 100; ++step) {
        for (std::int32_t r = 0; r < most_rows; ++r) {
          rows[static_cast<std::size_t>(r)] = {r, 0, 1, child_node_key(step, r)};
        }
        const auto drawn =
            draw(*sampler, batch_of({3, 0, step, 0}, {1.0}, AcceptanceRule::rejection, rows),
                 on_device.data(), 0);
        for (const Children& c : drawn)
          ++counts[index_of(c[0].token) * vocab + index_of(c[1].token)];
      }
      return testing::compare(counts, law);
    };
    const testing::Fit fit = count(DeviceFault::none);
    EXPECT_TRUE(fit.fits) << fit.text();
    for (const DeviceFault fault :
         {DeviceFault::same_depth_shares_noise, DeviceFault::retry_shares_noise,
          DeviceFault::declared_is_not_sampled}) {
      const testing::Fit misfit = count(fault);
      std::cout << "fault " << static_cast<int>(fault) << ": " << misfit.text() << "\n";
      EXPECT_FALSE(misfit.fits) << misfit.text();
    }
  }
}

TEST_F(SamplerDraw, NoiseIsTheHosts) {
  constexpr std::int32_t tokens = 100003;
  for (const StepKey& key : {StepKey{1, 2, 3, 4}, StepKey{~0ull, 1ull << 40, 9, 1ull << 33}}) {
    std::vector<float> host(tokens);
    inverse_exponential_noise(key.seed, key.sequence, key.noise_position(6), host);
    const GuardedArray<float> out(tokens);
    testing::probe_coupled_noise(key, 6, tokens, out.data(), stream_);
    const std::vector<float> device = out.download();
    EXPECT_EQ(device, host);
  }
}

// 1 / E for uniforms at both ends, around 2/3 where the formula changes, and everywhere.
TEST_F(SamplerDraw, NoiseIsAccurateForEveryUniform) {
  std::vector<std::uint64_t> bits;
  const auto add = [&](std::uint64_t m) { bits.push_back(m << 12); };
  constexpr std::uint64_t cells = std::uint64_t{1} << 52;
  for (std::uint64_t i = 0; i < 300; ++i) {
    add(i);
    add(cells - 1 - i);
    for (const double u : {1.0 / 3.0, 0.5, 2.0 / 3.0, 0.75}) {
      add(static_cast<std::uint64_t>(u * static_cast<double>(cells)) - 150 + i);
      // Neighbouring floats, not only neighbouring cells.
      add(static_cast<std::uint64_t>((u + (static_cast<double>(i) - 150.0) * 0x1p-24) *
                                     static_cast<double>(cells)));
    }
  }
  for (int e = 1; e < 52; ++e) {
    add(std::uint64_t{1} << e);
    add(cells - (std::uint64_t{1} << e));
  }
  std::mt19937_64 random(12);
  for (int i = 0; i < 200000; ++i) bits.push_back(random());
  const GuardedArray<std::uint64_t> in(bits);
  const GuardedArray<float> out(bits.size());
  testing::probe_inverse_exponential(in.data(), static_cast<std::int32_t>(bits.size()), out.data(),
                                     stream_);
  const std::vector<float> got = out.download();
  double worst = 0.0;
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const std::uint64_t m = bits[i] >> 12;
    // 1 - u is exact in double, u near 1 is not.
    const double upper = (static_cast<double>(cells - m) - 0.5) * 0x1p-52;
    const double lower = (static_cast<double>(m) + 0.5) * 0x1p-52;
    const double e = upper < 0.5 ? -std::log1p(-upper) : -std::log(lower);
    worst = std::max(worst, std::abs(got[i] * e - 1.0));
  }
  std::cout << "largest relative error " << worst << "\n";
  EXPECT_LT(worst, testing::noise_error);
}

}  // namespace
}  // namespace coppice::sampler_draw_test
