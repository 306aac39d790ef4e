// What the GPU tells growth of the noise: children's scores and their row's moments against the
// host's drawer.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include "cuda/sampler_rig.h"
#include "drafting/belief.h"
#include "drafting/child_drawer.h"
#include "kernels/noise.h"
#include "reference/sampling_reference.h"

namespace coppice::sampler_beliefs_test {
namespace {

using testing::GuardedArray;
using testing::random_logits;

constexpr std::size_t most_children = cuda::drawn_children;

std::size_t index_of(std::int32_t i) { return static_cast<std::size_t>(i); }

/// Scores and moments of one row, copied.
struct Drawn {
  std::vector<DeviceChild> list;
  std::vector<float> scores;
  PowerMoments moments;
  bool exhausted = false;

  explicit Drawn(const DrawnChildren& drawn)
      : list(drawn.list.begin(), drawn.list.end()),
        scores(drawn.scores.begin(), drawn.scores.end()),
        moments(drawn.moments),
        exhausted(drawn.exhausted) {}
};

/// The host's drawer over one row.
class HostRow {
 public:
  HostRow(std::span<const float> logits, const testing::OneDraw& batch, std::int32_t depth,
          const TokenCounts* seen)
      : vocab_(logits.size()),
        noise_(static_cast<std::int64_t>(vocab_)),
        drawer_(static_cast<std::int64_t>(vocab_), noise_) {
    StepKey key = batch.key;
    key.position += static_cast<std::uint64_t>(depth);  // the drawer's root has depth 0
    drawer_.begin(key, batch.rule, batch.belief_inverse_temperature);
    LogitsScratch scratch;
    const std::span<float> probs = drawer_.prepare(0);
    process_logits(logits, batch.params, seen, scratch, probs);
    drawer_.ready(0);
    std::vector<double> maxima((vocab_ + 63) / 64);
    std::span<const float> noise;
    if (batch.rule == AcceptanceRule::coupled) {
      noise = noise_.row(key.seed, key.sequence, key.noise_position(0));
    }
    block_maxima(probs, noise, 64, maxima);
    moments_ = power_moments(probs, noise, 64, maxima, batch.belief_inverse_temperature);
    tree_.reset(0);
  }

  std::optional<DrawnChild> next() { return drawer_.child(tree_, 0, rank_++); }
  const PowerMoments& moments() const { return moments_; }

 private:
  std::size_t vocab_;
  NoiseCache noise_;
  ChildDrawer drawer_;
  PowerMoments moments_;
  TokenTree tree_;
  std::int32_t rank_ = 0;
};

class SamplerBeliefs : public testing::SamplerTest {
 protected:
  /// Below this a score's float may have few digits, or none on one of the two sides.
  static constexpr float least_compared = 1e-25f;

  std::vector<Drawn> draw_scored(cuda::CudaSampler& sampler, const testing::OneDraw& batch,
                                 float* logits, std::int64_t stride, std::int32_t padding = 0) {
    sampler.stage_draw(batch.batch());
    transfers_->send();
    sampler.draw(logits, stride, static_cast<std::int32_t>(batch.rows.size()) + padding);
    std::vector<DrawnChildren> drawn(batch.rows.size());
    sampler.collect_draw(drawn);
    return {drawn.begin(), drawn.end()};
  }

  /// How far the moments are from the host's, in tolerances. Both sides' log scores are right to
  /// about 1e-5 (testing::Law, noise_error), x to the inverse temperature times that, and the
  /// weights exp(x) and their sums with it.
  static double moments_off(const PowerMoments& seen, const PowerMoments& expected,
                            double belief_inverse_temperature) {
    const double x_error = 2e-5 * (1.0 + belief_inverse_temperature),
                 spread = 1.0 + std::sqrt(expected.variance);
    const double square = expected.mean * expected.mean + expected.variance;
    return std::max({std::abs(seen.largest / expected.largest - 1.0) / 2e-5,
                     std::abs(seen.sum / expected.sum - 1.0) / (2.0 * x_error),
                     std::abs(seen.mean - expected.mean) /
                         (4.0 * x_error * spread + 1e-5 * std::abs(expected.mean)),
                     std::abs(seen.variance - expected.variance) /
                         (8.0 * x_error * spread * spread + 1e-5 * square)});
  }

  /// Beliefs of consecutive children against the host's, rank by rank; the children too, but for
  /// neighbours that rounding may exchange.
  static void expect_beliefs(const Drawn& drawn, HostRow& host, double belief_inverse_temperature) {
    ASSERT_EQ(drawn.scores.size(), drawn.list.size());
    for (std::size_t i = 0; i < drawn.list.size(); ++i) {
      if (drawn.scores[i] < least_compared) return;
      const auto expected = host.next();
      ASSERT_TRUE(expected) << "rank " << i;
      const auto of_host = static_cast<double>(expected->belief);
      const auto seen = static_cast<double>(
          belief(drawn.moments, belief_inverse_temperature, static_cast<double>(drawn.scores[i])));
      ASSERT_NEAR(seen, of_host, 6e-5 * (1.0 + belief_inverse_temperature) * of_host + 1e-37)
          << "rank " << i;
      if (drawn.list[i].token != expected->token) {
        const bool close =
            (i > 0 && drawn.scores[i - 1] <= 1.0001f * drawn.scores[i]) ||
            (i + 1 < drawn.scores.size() && drawn.scores[i] <= 1.0001f * drawn.scores[i + 1]) ||
            i + 1 == drawn.scores.size();
        ASSERT_TRUE(close) << "rank " << i << ": " << drawn.list[i].token << " instead of "
                           << expected->token;
      }
    }
  }
};

struct Vocabularies {
  std::int32_t target, draft;
};
void PrintTo(const Vocabularies& v, std::ostream* out) { *out << v.target << " of " << v.draft; }

class SamplerBeliefsByVocabulary : public SamplerBeliefs,
                                   public ::testing::WithParamInterface<Vocabularies> {};

TEST_P(SamplerBeliefsByVocabulary, AreTheHostDrawers) {
  const Vocabularies v = GetParam();
  const std::int32_t common = std::min(v.target, v.draft);
  std::mt19937_64 random(static_cast<std::uint64_t>(v.draft) + 3);
  const auto sampler = make_sampler(v.target, v.draft, 4, 4);
  const std::vector<DrawRow> rows{{2, 0, 0, root_node_key},
                                  {0, 0, 3, child_node_key(root_node_key, 0)}};
  double worst = 0.0;
  int compared = 0;
  for (const SamplingParams& params :
       {SamplingParams{1.0}, SamplingParams{0.45}, SamplingParams{0.6, 40},
        SamplingParams{1.0, 0, 0.9}, SamplingParams{1.3, 0, 1.0, 0.02}}) {
    for (const int kind : {0, 3, 4, 5, 6}) {
      std::vector<float> logits;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        std::vector<float> row = random_logits(random, index_of(v.draft), kind);
        for (std::size_t t = index_of(common); t < row.size(); ++t) row[t] = 90.0f;  // padding
        logits.insert(logits.end(), row.begin(), row.end());
      }
      logits.resize(4 * index_of(v.draft), 0.0f);
      const GuardedArray<float> on_device(logits);
      std::vector<std::span<const float>> common_rows;
      std::vector<bool> near_edge;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        common_rows.push_back(std::span(logits).subspan(r * index_of(v.draft), index_of(common)));
        near_edge.push_back(testing::reference_law(common_rows[r], params).near_edge);
      }
      for (const AcceptanceRule rule : {AcceptanceRule::greedy, AcceptanceRule::coupled}) {
        for (const double belief_inverse_temperature : {0.3, 1.0, 2.2, 8.0}) {
          testing::OneDraw batch;
          batch.key = {random(), random() % 5, random() % 100, random() % 1000};
          batch.params = params;
          batch.rule = rule;
          batch.belief_inverse_temperature = belief_inverse_temperature;
          batch.rows = rows;
          const auto drawn = draw_scored(*sampler, batch, on_device.data(), v.draft, 2);
          for (std::size_t r = 0; r < rows.size(); ++r) {
            if (near_edge[r]) continue;
            SCOPED_TRACE(::testing::Message()
                         << "kind " << kind << " rule " << static_cast<int>(rule) << " k "
                         << params.top_k << " p " << params.top_p << " min-p " << params.min_p
                         << " belief_inverse_temperature " << belief_inverse_temperature << " row "
                         << r);
            HostRow host(common_rows[r], batch, rows[r].depth, nullptr);
            const double off =
                moments_off(drawn[r].moments, host.moments(), belief_inverse_temperature);
            worst = std::max(worst, off);
            ++compared;
            EXPECT_LE(off, 1.0) << drawn[r].moments.sum << " instead of " << host.moments().sum
                                << ", mean " << drawn[r].moments.mean << " instead of "
                                << host.moments().mean << ", variance " << drawn[r].moments.variance
                                << " instead of " << host.moments().variance;
            expect_beliefs(drawn[r], host, belief_inverse_temperature);
            if (HasFatalFailure()) return;
            EXPECT_EQ(drawn[r].exhausted, drawn[r].list.size() < most_children);
            if (!drawn[r].exhausted) continue;
            const auto beyond = host.next();
            // (Noise divides by less than 40.)
            EXPECT_TRUE(!beyond || beyond->prob < 40.0f * least_compared) << "children are missing";
          }
        }
      }
    }
  }
  std::cout << compared << " rows, moments off by at most " << worst << " of the tolerance\n";
  EXPECT_GT(compared, 100);
}

// The moments stay the whole row's, bit for bit, whatever has been listed.
TEST_P(SamplerBeliefsByVocabulary, MoreContinuesWithTheRowsMoments) {
  const Vocabularies v = GetParam();
  const std::int32_t common = std::min(v.target, v.draft);
  std::mt19937_64 random(static_cast<std::uint64_t>(v.draft) + 4);
  const auto sampler = make_sampler(v.target, v.draft, 1, 3);
  const std::vector<DrawRow> rows{{1, 0, 2, 11}};
  for (const AcceptanceRule rule : {AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    const std::vector<float> logits = random_logits(random, index_of(v.draft), 0);
    const std::span<const float> row = std::span(logits).first(index_of(common));
    const GuardedArray<float> on_device(logits);
    testing::OneDraw batch;
    batch.key = {5, 6, 7, random()};
    batch.params = {1.0, 150};
    batch.rule = rule;
    batch.belief_inverse_temperature = 0.8;
    batch.rows = rows;
    if (testing::reference_law(row, batch.params).near_edge) continue;
    HostRow host(row, batch, 2, nullptr);
    Drawn drawn = draw_scored(*sampler, batch, on_device.data(), v.draft)[0];
    const PowerMoments first = drawn.moments;
    double sum = 0.0;
    while (true) {
      expect_beliefs(drawn, host, batch.belief_inverse_temperature);
      ASSERT_FALSE(HasFatalFailure());
      for (std::size_t i = 0; i < drawn.list.size(); ++i) {
        sum += static_cast<double>(
            belief(first, batch.belief_inverse_temperature, static_cast<double>(drawn.scores[i])));
        // What is listed and what is asked for are the same bits.
        if (i % 13 == 0) {
          ASSERT_EQ(sampler->score_of(batch, batch.rows[0], drawn.list[i].token), drawn.scores[i]);
        }
      }
      if (drawn.exhausted) break;
      drawn = Drawn(sampler->more(batch, batch.rows[0], drawn.list.back().token));
      EXPECT_EQ(drawn.moments.largest, first.largest);
      EXPECT_EQ(drawn.moments.sum, first.sum);
      EXPECT_EQ(drawn.moments.mean, first.mean);
      EXPECT_EQ(drawn.moments.variance, first.variance);
    }
    EXPECT_FALSE(host.next());
    EXPECT_NEAR(sum, 1.0, 1e-4) << "beliefs of all children";
    EXPECT_EQ(sampler->score_of(batch, batch.rows[0], common), 0.0f)
        << "known to one model, or to none";
    if (common > 150) {
      const auto least =
          static_cast<TokenId>(std::min_element(row.begin(), row.end()) - row.begin());
      EXPECT_EQ(sampler->score_of(batch, batch.rows[0], least), 0.0f) << "filtered";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, SamplerBeliefsByVocabulary,
                         ::testing::Values(Vocabularies{3, 3}, Vocabularies{1000, 1000},
                                           Vocabularies{32000, 32000}, Vocabularies{32000, 32064},
                                           Vocabularies{32064, 32000}, Vocabularies{128256, 128256},
                                           Vocabularies{320 * 1024, 320 * 1024}));

TEST_F(SamplerBeliefs, FollowThePenalty) {
  constexpr std::int32_t vocab = 9000;
  std::mt19937_64 random(21);
  const std::vector<TokenId> token{3, 5, 8500};
  const std::vector<std::int32_t> parent{-1, 0, 1};
  TokenCounts seen(vocab);
  for (int i = 0; i < 2000; ++i) seen.add(static_cast<TokenId>(random() % vocab));
  const TokenCounts counts = seen;
  for (const TokenId t : {5, 8500}) seen.add(t);
  const PenaltyText text{&counts, token, parent};
  const std::vector<float> logits = random_logits(random, vocab, 0);
  const GuardedArray<float> on_device(logits);
  const auto sampler = make_sampler(vocab, vocab, 4, 4);
  const std::vector<DrawRow> rows{{0, 2, 2, 1}};
  testing::OneDraw batch;
  batch.key = {1, 2, 3, 4};
  batch.params = {0.8, 0, 1.0, 0.0, 1.7};
  batch.rule = AcceptanceRule::coupled;
  batch.belief_inverse_temperature = 1.3;
  batch.rows = rows;
  batch.penalty = &text;
  const Drawn drawn = draw_scored(*sampler, batch, on_device.data(), vocab)[0];
  HostRow host(logits, batch, 2, &seen);
  EXPECT_LE(moments_off(drawn.moments, host.moments(), batch.belief_inverse_temperature), 1.0);
  expect_beliefs(drawn, host, batch.belief_inverse_temperature);
  const TokenCounts none(vocab);
  EXPECT_GT(moments_off(drawn.moments, HostRow(logits, batch, 2, &none).moments(), 1.3), 1.0);
}

// What the tests above compare turns on every part of a row, and on the noise of its position.
TEST_F(SamplerBeliefs, FaultsAreNoticed) {
  constexpr std::int32_t vocab = 32000;
  std::mt19937_64 random(22);
  const auto sampler = make_sampler(vocab, vocab, 1, 1);
  const std::vector<DrawRow> rows{{0, 0, 1, 1}};
  int slices = 0, positions = 0, powers = 0;
  constexpr int trials = 20;
  for (int trial = 0; trial < trials; ++trial) {
    const std::vector<float> logits = random_logits(random, vocab, 0);
    const GuardedArray<float> on_device(logits);
    testing::OneDraw batch;
    batch.key = {random(), 1, 2, 3};
    batch.params = {1.0};
    batch.rule = AcceptanceRule::coupled;
    batch.belief_inverse_temperature = 0.7;
    batch.rows = rows;
    const auto off = [&](const testing::OneDraw& drawn, DeviceFault fault) {
      sampler->plant(fault);
      return moments_off(draw_scored(*sampler, drawn, on_device.data(), vocab)[0].moments,
                         HostRow(logits, batch, 1, nullptr).moments(),
                         batch.belief_inverse_temperature);
    };
    EXPECT_LE(off(batch, DeviceFault::none), 1.0);
    slices += off(batch, DeviceFault::sums_miss_a_slice) > 1.0 ? 1 : 0;
    testing::OneDraw other = batch;
    ++other.key.position;
    positions += off(other, DeviceFault::none) > 1.0 ? 1 : 0;
    other = batch;
    other.belief_inverse_temperature = 0.71;
    powers += off(other, DeviceFault::none) > 1.0 ? 1 : 0;
  }
  EXPECT_EQ(slices, trials);
  EXPECT_EQ(positions, trials);
  EXPECT_EQ(powers, trials);
}

TEST_F(SamplerBeliefs, ComeOnlyWithAnInverseTemperature) {
  constexpr std::int32_t vocab = 20000;
  std::mt19937_64 random(23);
  const auto sampler = make_sampler(vocab, vocab, 1, 1);
  const GuardedArray<float> logits(random_logits(random, vocab, 0));
  const std::vector<DrawRow> rows{{0, 0, 1, 1}};
  testing::OneDraw batch;
  batch.params = {1.0};
  batch.rule = AcceptanceRule::coupled;
  batch.rows = rows;
  batch.belief_inverse_temperature = 1.0;
  const Drawn with = draw_scored(*sampler, batch, logits.data(), vocab)[0];
  batch.belief_inverse_temperature = 0.0;
  const Drawn without = draw_scored(*sampler, batch, logits.data(), vocab)[0];
  EXPECT_GT(with.moments.sum, 0.0);
  EXPECT_EQ(without.moments.sum, 0.0);
  EXPECT_TRUE(without.scores.empty());
  // The children themselves are the same.
  ASSERT_EQ(with.list.size(), without.list.size());
  for (std::size_t i = 0; i < with.list.size(); ++i) {
    EXPECT_EQ(with.list[i].token, without.list[i].token);
    EXPECT_EQ(with.list[i].prob, without.list[i].prob);
  }
}

}  // namespace
}  // namespace coppice::sampler_beliefs_test
