// Rejection on the GPU: the number that growth is told of with a drawn child is the one that the
// verdict turns on.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <random>
#include <vector>

#include "cuda/sampler_rig.h"
#include "drafting/child_drawer.h"
#include "drafting/draft_sampler.h"
#include "kernels/rejection_rule.h"
#include "models/sequence_state.h"

namespace coppice::sampler_numbers_test {
namespace {

using testing::GuardedArray;

std::size_t index_of(std::int32_t i) { return static_cast<std::size_t>(i); }

// A target row gives a drawn child a chance just above its number's cell, and it is accepted; one
// just below, and it is refused.
class SamplerNumbers : public testing::SamplerTest {
 protected:
  static constexpr std::int32_t vocab = 12;
  static constexpr std::int32_t ranks = 4;

  void SetUp() override {
    SamplerTest::SetUp();
    if (IsSkipped()) return;
    sampler_ = make_sampler(vocab, vocab, 16, 8);
  }
  void TearDown() override {
    sampler_.reset();
    SamplerTest::TearDown();
  }

  /// Draws `ranks` children of the root and of its child of rank 1, the tree's node 2.
  void grow(DraftSampling& sampling, DraftSampler& draft, const StepKey& key,
            const GuardedArray<float>& logits) {
    draft.begin(state_, key, {1.0}, AcceptanceRule::rejection, 1.0);
    tree_.reset(0);
    for (auto& children : drawn_) children.clear();
    const auto evaluate = [&](std::int32_t node, float* row) {
      const std::vector<std::int32_t> nodes{node};
      sampling.begin_pass();
      draft.stage(tree_, nodes);
      sampling.epilogue();
      transfers_->send();
      sampler_->draw(row, vocab, 1);
      sampling.collect(nullptr);
      draft.take(tree_, nodes);
      for (std::int32_t rank = 0; rank < ranks; ++rank) {
        const auto child = draft.child(tree_, node, rank);
        ASSERT_TRUE(child);
        drawn_[node == 0 ? 0 : 1].push_back(*child);
      }
    };
    evaluate(0, logits.data());
    for (std::int32_t rank = 0; rank < ranks; ++rank) {
      tree_.add(0, drawn_[0][index_of(rank)].token, rank, 0.1f, 0.1);
    }
    evaluate(2, logits.data() + vocab);
  }

  /// A target row under which earlier siblings have nothing and this child gets accepted for
  /// numbers below `chance`: what it does not get goes to a token that was not drawn.
  std::vector<float> target_row(const std::vector<DrawnChild>& children, std::int32_t rank,
                                double chance) const {
    std::vector<bool> is_drawn(vocab, false);
    for (const DrawnChild& child : children) is_drawn[index_of(child.token)] = true;
    const auto rest = static_cast<std::size_t>(std::find(is_drawn.begin(), is_drawn.end(), false) -
                                               is_drawn.begin());
    const auto row = draft_row(children);
    const auto chance_of = [&](double mass) {
      NodeRejection state;
      const std::size_t own = index_of(children[index_of(rank)].token);
      for (std::int32_t r = 0; r < rank; ++r) {
        state.reject(static_cast<double>(children[index_of(r)].prob));
        state.note_masses(std::max(0.0, mass - state.scale * row[own]) +
                              std::max(0.0, 1.0 - mass - state.scale * row[rest]),
                          1.0);
      }
      const double residual = std::max(0.0, mass - state.scale * row[own]);
      return residual / state.residual_left / (row[own] / state.draft_left(row[own]));
    };
    double low = 0.0, high = 1.0;
    for (int i = 0; i < 60; ++i) {
      const double middle = 0.5 * (low + high);
      (chance_of(middle) < chance ? low : high) = middle;
    }
    std::vector<float> logits(vocab, -testing::infinity);
    logits[index_of(children[index_of(rank)].token)] = static_cast<float>(std::log(high));
    logits[rest] = static_cast<float>(std::log1p(-high));
    return logits;
  }

  const std::vector<double>& draft_row(const std::vector<DrawnChild>& children) const {
    return &children == &drawn_[0] ? root_row_ : node_row_;
  }

  /// Whether the tree's root, or node 2, keeps the child of this rank for such a chance.
  bool accepts(const DraftSampler& draft, const StepKey& key, int node, std::int32_t rank,
               double chance) {
    const std::vector<DrawnChild>& children = drawn_[static_cast<std::size_t>(node)];
    // Depth-first: root, its children; where node 2 is meant, that one's among them.
    std::vector<TokenId> token{0};
    std::vector<std::int32_t> parent{-1}, depth{0}, ranks_of{0}, store{draft.store_row(0)};
    std::vector<std::vector<float>> rows;
    const auto add = [&](std::int32_t above, const DrawnChild& child, std::int32_t own_rank) {
      token.push_back(child.token);
      parent.push_back(above);
      depth.push_back(depth[index_of(above)] + 1);
      ranks_of.push_back(own_rank);
      store.push_back(-1);
      rows.emplace_back(vocab, 0.0f);
    };
    rows.emplace_back();
    const std::int32_t last = node == 0 ? rank : 1;
    for (std::int32_t r = 0; r <= last; ++r) add(0, drawn_[0][index_of(r)], r);
    std::int32_t wanted = rank + 1;
    if (node == 0) {
      rows[0] = target_row(children, rank, chance);
    } else {
      rows[0] = std::vector<float>(vocab, -testing::infinity);
      rows[0][index_of(drawn_[0][1].token)] = 0.0f;  // surely accepted
      store[2] = draft.store_row(2);
      for (std::int32_t r = 0; r <= rank; ++r) add(2, children[index_of(r)], r);
      rows[2] = target_row(children, rank, chance);
      wanted = 3 + rank;
    }
    std::vector<float> logits;
    for (const auto& row : rows) logits.insert(logits.end(), row.begin(), row.end());
    GuardedArray<float> on_device(logits);
    testing::OneTree batch;
    batch.key = key;
    batch.params = {1.0};
    batch.token = token;
    batch.parent = parent;
    batch.depth = depth;
    batch.rank = ranks_of;
    batch.store = store;
    stage_judge(*sampler_, batch);
    transfers_->send();
    sampler_->judge(on_device.data(), static_cast<std::int32_t>(token.size()));
    DeviceVerdict verdict;
    sampler_->collect_verdicts({&verdict, 1});
    return std::find(verdict.rows.begin(), verdict.rows.end(), wanted) != verdict.rows.end();
  }

  std::unique_ptr<cuda::CudaSampler> sampler_;
  // A text needs a pool to take KV slots from, of which drawing takes none.
  std::unique_ptr<Device> cpu_ = make_cpu_device({.threads = 1});
  KvPool pool_{*cpu_, {.layers = 1, .kv_heads = 1, .head_dim = 8, .pages = 1}};
  SequenceState state_{vocab, pool_, nullptr};
  TokenTree tree_;
  std::vector<DrawnChild> drawn_[2];  ///< of the root, of node 2
  std::vector<double> root_row_, node_row_;
};

TEST_F(SamplerNumbers, AreThoseThatJudge) {
  const auto sampling = make_device_draft_sampling(*sampler_, 8);
  for (const DrawingFault fault : {DrawingFault::none, DrawingFault::looks_at_next_sibling,
                                   DrawingFault::looks_at_next_step}) {
    sampling->plant(fault);
    const auto draft = sampling->make();
    std::mt19937_64 random(31);
    int agree = 0, all = 0;
    for (int trial = 0; trial < 8; ++trial) {
      std::normal_distribution<float> normal(0.0f, 0.7f);
      std::vector<float> logits(2 * vocab);
      for (float& x : logits) x = normal(random);
      for (const bool root : {true, false}) {
        std::vector<double>& row = root ? root_row_ : node_row_;
        row.assign(vocab, 0.0);
        double sum = 0.0;
        for (std::size_t t = 0; t < row.size(); ++t) {
          sum += row[t] = std::exp(static_cast<double>(logits[t + (root ? 0 : vocab)]));
        }
        for (double& prob : row) prob /= sum;
      }
      const GuardedArray<float> on_device(logits);
      const StepKey key{random(), 3, static_cast<std::uint64_t>(trial), 17};
      grow(*sampling, *draft, key, on_device);
      if (HasFatalFailure()) return;
      for (const int node : {0, 1}) {
        for (std::int32_t rank = 0; rank < ranks; ++rank) {
          const auto u =
              static_cast<double>(drawn_[static_cast<std::size_t>(node)][index_of(rank)].uniform);
          ASSERT_GT(u, 0.0);
          constexpr double reach = 0.5 / acceptance_cells + 1e-3;
          const bool above = accepts(*draft, key, node, rank, std::min(1.0, u + reach));
          const bool below = u > reach && accepts(*draft, key, node, rank, u - reach);
          agree += above && !below ? 1 : 0;
          ++all;
        }
      }
    }
    std::cout << "fault " << static_cast<int>(fault) << ": " << agree << " of " << all << "\n";
    if (fault == DrawingFault::none) {
      EXPECT_EQ(agree, all);
    } else {
      EXPECT_LT(agree, all / 4);
    }
  }
}

}  // namespace
}  // namespace coppice::sampler_numbers_test
