// The sum of squared probabilities that comes with sampled children, from which growth has the
// shares that it expects (drafting/mass_left.h).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <random>
#include <span>
#include <vector>

#include "cuda/sampler_rig.h"
#include "reference/sampling_reference.h"

namespace coppice::sampler_shares_test {
namespace {

using testing::GuardedArray;
using testing::Law;
using testing::random_logits;

std::size_t index_of(std::int32_t i) { return static_cast<std::size_t>(i); }

class SamplerShares : public testing::SamplerTest {
 protected:
  std::vector<double> squares(cuda::CudaSampler& sampler, const testing::OneDraw& batch,
                              float* logits, std::int64_t stride) {
    sampler.stage_draw(batch.batch());
    transfers_->send();
    sampler.draw(logits, stride, static_cast<std::int32_t>(batch.rows.size()));
    std::vector<DrawnChildren> drawn(batch.rows.size());
    sampler.collect_draw(drawn);
    std::vector<double> of;
    for (const DrawnChildren& row : drawn) {
      of.push_back(row.squares);
      last_ = row.list.back().token;
    }
    return of;
  }

  /// In tolerances. A probability's error counts twice in its square; a sum of floats is taken in
  /// less than 64 steps in a row, for a slice's are added by threads, then warps.
  static double off(double seen, const Law& law) {
    double expected = 0.0, error = 0.0;
    for (std::size_t t = 0; t < law.probs.size(); ++t) {
      expected += law.probs[t] * law.probs[t];
      error += 2.0 * law.probs[t] * law.error[t];
    }
    return std::abs(seen - expected) / (error + 64.0 * 0x1p-24 * expected);
  }

  TokenId last_ = -1;  ///< of the children drawn last
};

TEST_F(SamplerShares, SquaresAreTheRows) {
  std::mt19937_64 random(31);
  double worst = 0.0;
  int compared = 0;
  for (const std::int32_t vocab : {3, 1000, 32000, 128256}) {
    const auto sampler = make_sampler(vocab, vocab, 2, 2);
    const std::vector<DrawRow> rows{{1, 0, 0, root_node_key},
                                    {0, 0, 3, child_node_key(root_node_key, 0)}};
    for (const SamplingParams& params :
         {SamplingParams{1.0}, SamplingParams{0.45}, SamplingParams{0.6, 40},
          SamplingParams{1.0, 0, 0.9}, SamplingParams{1.3, 0, 1.0, 0.02}}) {
      for (const int kind : {0, 2, 3, 4, 5, 6}) {
        std::vector<float> logits = random_logits(random, index_of(vocab), kind);
        const std::vector<float> second = random_logits(random, index_of(vocab), kind);
        logits.insert(logits.end(), second.begin(), second.end());
        const GuardedArray<float> on_device(logits);
        testing::OneDraw batch;
        batch.key = {random(), 1, 2, 3};
        batch.params = params;
        batch.rows = rows;
        const auto seen = squares(*sampler, batch, on_device.data(), vocab);
        for (std::size_t r = 0; r < rows.size(); ++r) {
          const Law law = testing::reference_law(
              std::span(logits).subspan(r * index_of(vocab), index_of(vocab)), params);
          if (law.near_edge) continue;
          const double by = off(seen[r], law);
          worst = std::max(worst, by);
          ++compared;
          EXPECT_LE(by, 1.0) << vocab << " tokens, kind " << kind << ", row " << r << ": "
                             << seen[r];
        }
      }
    }
  }
  std::cout << compared << " rows, off by at most " << worst << " of the tolerance\n";
  EXPECT_GT(compared, 200);
}

// Whatever has been listed, they stay the whole row's; other ways of drawing have none.
TEST_F(SamplerShares, MoreContinuesWithThem) {
  constexpr std::int32_t vocab = 20000;
  std::mt19937_64 random(32);
  const auto sampler = make_sampler(vocab, vocab, 1, 1);
  const GuardedArray<float> logits(random_logits(random, vocab, 0));
  const std::vector<DrawRow> rows{{0, 0, 1, 7}};
  testing::OneDraw batch;
  batch.key = {1, 2, 3, 4};
  batch.params = {1.0};
  batch.rows = rows;
  const double first = squares(*sampler, batch, logits.data(), vocab)[0];
  for (int i = 0; i < 3; ++i) {
    const DrawnChildren more = sampler->more(batch, batch.rows[0], last_);
    EXPECT_EQ(more.squares, first);
    last_ = more.list.back().token;
  }
  for (const AcceptanceRule rule : {AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    for (const double belief_inverse_temperature : {0.0, 1.0}) {
      batch.rule = rule;
      batch.belief_inverse_temperature = belief_inverse_temperature;
      EXPECT_LT(squares(*sampler, batch, logits.data(), vocab)[0], 0.0);
      EXPECT_LT(sampler->more(batch, batch.rows[0], last_).squares, 0.0);
    }
  }
}

TEST_F(SamplerShares, AMissedSliceIsNoticed) {
  constexpr std::int32_t vocab = 32000;
  std::mt19937_64 random(33);
  const auto sampler = make_sampler(vocab, vocab, 1, 1);
  const std::vector<DrawRow> rows{{0, 0, 1, 1}};
  testing::OneDraw batch;
  batch.params = {1.0};
  batch.rows = rows;
  for (int trial = 0; trial < 20; ++trial) {
    batch.key = {random(), 1, 2, 3};
    const std::vector<float> logits = random_logits(random, vocab, 0);
    const GuardedArray<float> on_device(logits);
    const Law law = testing::reference_law(logits, batch.params);
    sampler->plant(DeviceFault::none);
    EXPECT_LE(off(squares(*sampler, batch, on_device.data(), vocab)[0], law), 1.0);
    sampler->plant(DeviceFault::sums_miss_a_slice);
    EXPECT_GT(off(squares(*sampler, batch, on_device.data(), vocab)[0], law), 1.0);
  }
}

}  // namespace
}  // namespace coppice::sampler_shares_test
