// Drawing from a device's lists and moments against drawing on the host. The device is one of
// host arithmetic that yields what kernels/device_sampler.h promises.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <random>
#include <vector>

#include "base/random.h"
#include "base/token_tree.h"
#include "drafting/child_drawer.h"
#include "drafting/draft_sampler.h"
#include "kernels/device.h"
#include "kernels/device_sampler.h"
#include "kernels/logits.h"
#include "kernels/noise.h"
#include "models/sequence_state.h"

namespace coppice::device_draft_sampler_test {
namespace {

constexpr std::size_t vocab = 300;

double sum_of_squares(std::span<const float> probs) {
  double sum = 0.0;
  for (const float prob : probs) sum += static_cast<double>(prob) * static_cast<double>(prob);
  return sum;
}

class HostArithmetic final : public DeviceSampler {
 public:
  HostArithmetic() : DeviceSampler(vocab) {}

  /// Logits of the rows staged next.
  std::vector<std::vector<float>> logits;
  std::int32_t scores_asked = 0;

  void stage_draw(const DrawBatch& batch) override {
    lists_.assign(batch.rows.size(), {});
    for (std::size_t r = 0; r < batch.rows.size(); ++r) {
      std::vector<float>& probs = probs_[batch.rows[r].store];
      probs.resize(vocab);
      const DrawText& text = batch.texts[static_cast<std::size_t>(batch.rows[r].text)];
      process_logits(logits[r], text.params, nullptr, scratch_, probs);
      list(text, batch.rows[r], -1, lists_[r]);
    }
  }
  void draw(float*, std::int64_t, std::int32_t) override {}
  void collect_draw(std::span<DrawnChildren> out) override {
    for (std::size_t r = 0; r < out.size(); ++r) out[r] = lists_[r].drawn;
  }
  DrawnChildren more(const DrawText& text, const DrawRow& row, TokenId last) override {
    list(text, row, last, more_);
    return more_.drawn;
  }
  float score_of(const DrawText& text, const DrawRow& row, TokenId token) override {
    ++scores_asked;
    return scores(text, row)[static_cast<std::size_t>(token)];
  }

  void stage_judge(std::span<const JudgeText>) override {}
  void judge(float*, std::int32_t) override {}
  void collect_verdicts(std::span<DeviceVerdict>) override {}
  void stage_score(std::span<const TokenId>, const SamplingParams&) override {}
  void score(const float*, std::int64_t, std::int32_t) override {}
  void collect_scores(std::span<float>) override {}

 private:
  struct List {
    std::vector<DeviceChild> children;
    std::vector<float> scores;
    DrawnChildren drawn;
  };

  std::vector<float> noise(const DrawText& batch, const DrawRow& row) const {
    std::vector<float> noise(vocab, 1.0f);
    if (batch.rule == AcceptanceRule::coupled) {
      inverse_exponential_noise(batch.key.seed, batch.key.sequence,
                                batch.key.noise_position(static_cast<std::uint64_t>(row.depth)),
                                noise);
    }
    return noise;
  }
  std::vector<float> scores(const DrawText& batch, const DrawRow& row) {
    std::vector<float> scores = noise(batch, row);
    for (std::size_t t = 0; t < vocab; ++t) scores[t] *= probs_[row.store][t];
    return scores;
  }
  void list(const DrawText& batch, const DrawRow& row, TokenId last, List& out) {
    constexpr std::size_t most = 32;
    const std::vector<float>& probs = probs_[row.store];
    const std::vector<float> score = scores(batch, row);
    std::vector<std::size_t> order;
    for (std::size_t t = 0; t < vocab; ++t) {
      if (score[t] > 0.0f) order.push_back(t);
    }
    std::stable_sort(order.begin(), order.end(),
                     [&](std::size_t a, std::size_t b) { return score[a] > score[b]; });
    const auto begin =
        last < 0 ? order.begin()
                 : std::find(order.begin(), order.end(), static_cast<std::size_t>(last)) + 1;
    out = {};
    for (auto at = begin; at != order.end() && out.children.size() < most; ++at) {
      out.children.push_back({static_cast<TokenId>(*at), probs[*at]});
      out.scores.push_back(score[*at]);
    }
    out.drawn.list = out.children;
    out.drawn.exhausted = out.children.size() < most;
    if (batch.rule == AcceptanceRule::rejection) out.drawn.squares = sum_of_squares(probs);
    if (!(batch.belief_inverse_temperature > 0.0)) return;
    out.drawn.scores = out.scores;
    std::vector<double> maxima((vocab + 63) / 64);
    const std::vector<float> of_row = noise(batch, row);
    block_maxima(probs, of_row, 64, maxima);
    out.drawn.moments = power_moments(probs, of_row, 64, maxima, batch.belief_inverse_temperature);
  }

  std::map<std::int32_t, std::vector<float>> probs_;  ///< by row of the store
  std::vector<List> lists_;
  List more_;
  LogitsScratch scratch_;
};

class DeviceDrafting : public ::testing::Test {
 protected:
  DeviceDrafting() {
    tree_.reset(0);
    tree_.add(0, 5, 0, 0.5f, 0.5);
  }

  std::vector<float> random_logits() {
    std::normal_distribution<float> normal(0.0f, 2.0f);
    std::vector<float> logits(vocab);
    for (float& x : logits) x = normal(random_);
    return logits;
  }

  /// Root and its first child, evaluated by both.
  void evaluate(const SamplingParams& params, const StepKey& key, AcceptanceRule draw,
                double inverse_temperature) {
    const std::vector<std::int32_t> nodes{0, 1};
    sampler_.logits = {random_logits(), random_logits()};
    std::vector<float> all = sampler_.logits[0];
    all.insert(all.end(), sampler_.logits[1].begin(), sampler_.logits[1].end());
    for (const auto& [sampling, sampler] :
         {std::pair{host_sampling_.get(), host_.get()}, {device_sampling_.get(), device_.get()}}) {
      sampler->begin(state_, key, params, draw, inverse_temperature);
      sampling->begin_pass();
      sampler->stage(tree_, nodes);
      sampling->epilogue();
      sampling->collect(all.data());
      sampler->take(tree_, nodes);
    }
  }

  void expect_equal_evidence(std::int32_t node) {
    for (TokenId token = 0; token < static_cast<TokenId>(vocab); ++token) {
      const auto expected = host_->evidence(node, token), seen = device_->evidence(node, token);
      ASSERT_EQ(seen.has_value(), expected.has_value()) << token;
      if (!seen) continue;
      ASSERT_NEAR(seen->derivative, expected->derivative,
                  1e-5 * (1.0 + std::abs(expected->derivative)));
      ASSERT_NEAR(seen->information, expected->information, 1e-5 * expected->information);
    }
  }

  std::mt19937_64 random_{17};
  NoiseCache noise_{vocab};
  HostArithmetic sampler_;
  std::unique_ptr<DraftSampling> host_sampling_ = make_host_draft_sampling(vocab, vocab, noise_),
                                 device_sampling_ = make_device_draft_sampling(sampler_, 4);
  std::unique_ptr<DraftSampler> host_ = host_sampling_->make(), device_ = device_sampling_->make();
  TokenTree tree_;
  // A text needs a pool to take KV slots from, of which drawing takes none.
  std::unique_ptr<Device> cpu_ = make_cpu_device({.threads = 1});
  KvPool pool_{*cpu_, {.layers = 1, .kv_heads = 1, .head_dim = 8, .pages = 1}};
  SequenceState state_{vocab, pool_, nullptr};
};

TEST_F(DeviceDrafting, BeliefsAndEvidenceAreTheHosts) {
  std::uint64_t step = 0;
  for (const AcceptanceRule draw : {AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    for (const double inverse_temperature : {0.4, 1.0, 2.7}) {
      for (const SamplingParams& params : {SamplingParams{0.7}, SamplingParams{1.0, 60}}) {
        evaluate(params, {3, 4, 5, ++step}, draw, inverse_temperature);
        for (const std::int32_t node : {0, 1}) {
          EXPECT_FALSE(device_->evidence(node, 7)) << "no child of it was drawn";
          EXPECT_FALSE(host_->evidence(node, 7));
          double sum = 0.0;
          for (std::int32_t rank = 0; rank < 100; ++rank) {
            const auto expected = host_->child(tree_, node, rank);
            const auto child = device_->child(tree_, node, rank);
            ASSERT_EQ(child.has_value(), expected.has_value()) << rank;
            if (!child) break;
            ASSERT_EQ(child->token, expected->token);
            ASSERT_EQ(child->prob, expected->prob);
            ASSERT_NEAR(child->belief, expected->belief, 1e-5f * expected->belief);
            sum += static_cast<double>(child->belief);
            // Evidence of what is listed, and of the rest, which the device is asked for.
            if (rank == 0 || rank == 40) expect_equal_evidence(node);
          }
          if (params.top_k == 60) {
            EXPECT_NEAR(sum, 1.0, 1e-5);
            const std::int32_t asked = sampler_.scores_asked;
            expect_equal_evidence(node);
            EXPECT_EQ(sampler_.scores_asked, asked) << "all that D holds is listed";
          }
        }
      }
    }
  }
  EXPECT_FALSE(device_->evidence(2, 7)) << "never evaluated";
  device_->forget(std::vector<std::int32_t>{1});
  EXPECT_FALSE(device_->evidence(1, 7));
  device_->begin(state_, {}, {1.0}, AcceptanceRule::coupled, 1.0);
  EXPECT_FALSE(device_->evidence(0, 7)) << "of an earlier step";
}

TEST_F(DeviceDrafting, NeitherSampledChildrenNorInverseTemperature0BringBeliefs) {
  for (const auto& [draw, inverse_temperature] :
       {std::pair{AcceptanceRule::rejection, 1.0}, std::pair{AcceptanceRule::greedy, 0.0},
        std::pair{AcceptanceRule::coupled, 0.0}}) {
    evaluate({1.0}, {1, 2, 3, 4}, draw, inverse_temperature);
    const auto child = device_->child(tree_, 0, 0);
    ASSERT_TRUE(child);
    EXPECT_LT(child->belief, 0.0f);
    EXPECT_EQ(child->uniform >= 0.0f, draw == AcceptanceRule::rejection);
    EXPECT_FALSE(device_->evidence(0, child->token));
  }
}

// Of a token that is not listed less than of the last that is, without waiting for the device; of
// sampled children nothing, for their list tells which come first.
TEST_F(DeviceDrafting, BelievesOfAnyTokenWhatTheHostDoes) {
  std::uint64_t step = 0;
  for (const AcceptanceRule draw : {AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    evaluate({1.0}, {3, 4, 6, ++step}, draw, 1.5);
    EXPECT_LT(device_->belief_of(tree_, 2, 7), 0.0) << "never evaluated";
    std::vector<std::pair<double, double>> beliefs;  // the host's, the device's
    for (TokenId token = 0; token < static_cast<TokenId>(vocab); ++token) {
      beliefs.emplace_back(host_->belief_of(tree_, 0, token), device_->belief_of(tree_, 0, token));
    }
    std::ranges::sort(beliefs, std::greater<>());
    for (std::size_t i = 0; i < beliefs.size(); ++i) {
      const auto& [host, device] = beliefs[i];
      if (i < 32) {
        ASSERT_NEAR(device, host, 1e-5 * host) << i;
      } else {
        ASSERT_NEAR(device, 0.5 * beliefs[31].first, 1e-5) << i;
      }
    }
    EXPECT_EQ(sampler_.scores_asked, 0);
  }
  evaluate({1.0}, {3, 4, 6, ++step}, AcceptanceRule::rejection, 1.5);
  EXPECT_LT(device_->belief_of(tree_, 0, 7), 0.0);
}

// The mean, over the next draw, of the share that the token drawn has of what is left: by the
// tokens that are left. Before a draw, after some, and beyond what the device lists at a time.
TEST_F(DeviceDrafting, ExpectedSharesFollowWhatIsLeft) {
  std::uint64_t step = 0;
  for (const SamplingParams& params : {SamplingParams{0.7}, SamplingParams{1.0, 60}}) {
    evaluate(params, {3, 4, 5, ++step}, AcceptanceRule::rejection, 1.0);
    for (const std::int32_t node : {0, 1}) {
      std::vector<float> left(vocab);
      LogitsScratch scratch;
      process_logits(sampler_.logits[static_cast<std::size_t>(node)], params, nullptr, scratch,
                     left);
      for (std::int32_t rank = 0; rank < 59; ++rank) {
        double mass = 0.0;
        for (const float prob : left) mass += static_cast<double>(prob);
        ASSERT_NEAR(device_->expected_share(node), sum_of_squares(left) / (mass * mass),
                    1e-5 / mass)
            << rank;
        const auto child = device_->child(tree_, node, rank);
        ASSERT_TRUE(child);
        left[static_cast<std::size_t>(child->token)] = 0.0f;
      }
    }
  }
  for (const AcceptanceRule draw : {AcceptanceRule::greedy, AcceptanceRule::coupled}) {
    evaluate({1.0}, {3, 4, 5, ++step}, draw, 1.0);
    EXPECT_LT(device_->expected_share(0), 0.0) << "beliefs say more";
  }
}

// The numbers of acceptance that growth is told of; what judges is looked up here by base/random.h,
// and found in the GPU's verdicts in tests/cuda/sampler_numbers_test.cc.
TEST_F(DeviceDrafting, SampledChildrenComeWithTheCellOfTheirNumber) {
  for (const DrawingFault fault : {DrawingFault::none, DrawingFault::looks_at_next_sibling,
                                   DrawingFault::looks_at_next_step}) {
    device_sampling_->plant(fault);
    device_ = device_sampling_->make();
    int wrong = 0;
    for (std::uint64_t step = 0; step < 10; ++step) {
      const StepKey key{9, 8, 7, step};
      evaluate({1.0}, key, AcceptanceRule::rejection, 1.0);
      for (const std::int32_t node : {0, 1}) {
        const std::uint64_t node_key =
            node == 0 ? root_node_key : child_node_key(root_node_key, tree_.rank[1]);
        for (std::uint64_t rank = 0; rank < 5; ++rank) {
          const auto child = device_->child(tree_, node, static_cast<std::int32_t>(rank));
          ASSERT_TRUE(child);
          const double u = uniform(RandomStream::accept, key, node_key, rank);
          wrong += child->uniform == acceptance_cell(u) ? 0 : 1;
        }
      }
    }
    if (fault == DrawingFault::none) {
      EXPECT_EQ(wrong, 0);
    } else {
      EXPECT_GT(wrong, 80) << "of 100";
    }
  }
}

}  // namespace
}  // namespace coppice::device_draft_sampler_test
