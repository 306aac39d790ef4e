// A CudaSampler between host arrays, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <utility>
#include <vector>

#include "cuda/guarded_array.h"
#include "kernels/cuda/sampling/sampler.h"

namespace coppice::testing {

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// As many of each token as its entry says.
inline TokenCounts counted(std::span<const std::int32_t> counts) {
  TokenCounts out(std::ssize(counts));
  for (std::size_t token = 0; token < counts.size(); ++token) {
    for (std::int32_t i = 0; i < counts[token]; ++i) out.add(static_cast<TokenId>(token));
  }
  return out;
}

/// Rows of one text, as a batch of their own.
struct OneDraw : DrawText {
  std::span<const DrawRow> rows;
  DrawBatch batch() const { return {{static_cast<const DrawText*>(this), 1}, rows}; }
};

/// A tree whose nodes are rows, given by arrays, with the store's rows of their D.
class ListedTree final : public DraftEvidence, public TokenRules {
 public:
  using Masks = std::vector<std::shared_ptr<const TokenMask>>;
  /// `certain`: by row, not 0 of one from no distribution; empty: none is. `masks`: likewise.
  ListedTree(std::span<const TokenId> token, std::span<const std::int32_t> parent,
             std::span<const std::int32_t> depth, std::span<const std::int32_t> rank,
             std::span<const std::int32_t> store, std::span<const std::uint8_t> certain = {},
             Masks masks = {})
      : store_(store.begin(), store.end()), masks_(std::move(masks)) {
    const std::size_t rows = token.size();
    tree_.token.assign(token.begin(), token.end());
    tree_.parent.assign(parent.begin(), parent.end());
    tree_.depth.assign(depth.begin(), depth.end());
    tree_.rank.assign(rank.begin(), rank.end());
    for (auto* const links : {&tree_.first_child, &tree_.last_child, &tree_.next_sibling}) {
      links->assign(rows, -1);
    }
    tree_.origin.assign(rows, Origin::model);
    for (std::size_t n = 0; n < rows; ++n) {
      const auto row = static_cast<std::int32_t>(n);
      order_.node_of_row.push_back(row);
      order_.row_of_node.push_back(row);
      tree_.candidate.push_back(row);
      tree_.rule_state.push_back(row);
      if (!certain.empty() && certain[n] != 0) tree_.origin[n] = Origin::lookup;
      tree_.key.push_back(n == 0 ? root_node_key
                                 : child_node_key(tree_.key[index(parent[n])], rank[n]));
      if (n == 0) continue;
      std::int32_t* link = &tree_.first_child[index(parent[n])];
      while (*link >= 0 && rank[index(*link)] < rank[n]) link = &tree_.next_sibling[index(*link)];
      tree_.next_sibling[n] = std::exchange(*link, row);
    }
    if (!masks_.empty()) tree_.rules = this;
  }
  ListedTree(const ListedTree&) = delete;
  ListedTree& operator=(const ListedTree&) = delete;

  /// Judged as `text` says.
  JudgeText judged(JudgeText text) const {
    text.tree = &tree_;
    text.order = &order_;
    text.draft = this;
    return text;
  }

  std::int32_t store_row(std::int32_t node) const override { return store_[index(node)]; }
  std::int32_t start() const override { return 0; }
  std::int32_t advance(std::int32_t, TokenId) const override { return -1; }
  std::shared_ptr<const TokenMask> mask(std::int32_t row) const override {
    return masks_[index(row)];
  }
  std::vector<TokenId> forced(std::int32_t) const override { return {}; }

 private:
  static std::size_t index(std::int32_t i) { return static_cast<std::size_t>(i); }

  TokenTree tree_;
  TreeOrder order_;
  std::vector<std::int32_t> store_;
  Masks masks_;
};

/// Likewise its tree.
struct OneTree : JudgeText {
  std::span<const TokenId> token;
  std::span<const std::int32_t> parent, depth, rank, store;
  std::span<const std::uint8_t> certain = {};
};

class SamplerTest : public KernelTest {
 protected:
  using Children = std::vector<DeviceChild>;

  void SetUp() override {
    KernelTest::SetUp();
    if (!IsSkipped()) transfers_.emplace(stream_);
  }
  void TearDown() override {
    transfers_.reset();
    KernelTest::TearDown();
  }

  std::unique_ptr<cuda::CudaSampler> make_sampler(std::int64_t target_vocab,
                                                  std::int64_t draft_vocab, std::int32_t rows,
                                                  std::int32_t store_rows, std::int32_t texts = 1) {
    return std::make_unique<cuda::CudaSampler>(
        SamplerLimits{target_vocab, draft_vocab, rows, store_rows, texts}, allocate_for_test,
        *transfers_, stream_);
  }

  static void stage_judge(cuda::CudaSampler& sampler, const OneTree& batch,
                          ListedTree::Masks masks = {}) {
    const ListedTree tree(batch.token, batch.parent, batch.depth, batch.rank, batch.store,
                          batch.certain, std::move(masks));
    const JudgeText judged = tree.judged(batch);
    sampler.stage_judge({&judged, 1});
  }

  /// Logits [rows, stride]; stride 0 gives one row to all. `padding`: rows launched beyond the
  /// batch's. Each row's children.
  std::vector<Children> draw(cuda::CudaSampler& sampler, const OneDraw& batch, float* logits,
                             std::int64_t stride, std::int32_t padding = 0) {
    return draw(sampler, batch.batch(), logits, stride, padding);
  }
  std::vector<Children> draw(cuda::CudaSampler& sampler, const DrawBatch& batch, float* logits,
                             std::int64_t stride, std::int32_t padding = 0) {
    sampler.stage_draw(batch);
    transfers_->send();
    sampler.draw(logits, stride, static_cast<std::int32_t>(batch.rows.size()) + padding);
    std::vector<DrawnChildren> drawn(batch.rows.size());
    sampler.collect_draw(drawn);
    std::vector<Children> out;
    for (const auto& row : drawn) out.emplace_back(row.list.begin(), row.list.end());
    return out;
  }

  /// Probabilities of `next` under one row, as many at a time as `rows`.
  std::vector<float> score(cuda::CudaSampler& sampler, std::span<const TokenId> next,
                           const SamplingParams& params, const float* logits, std::size_t rows) {
    std::vector<float> scores(next.size());
    for (std::size_t begin = 0; begin < next.size(); begin += rows) {
      const std::size_t count = std::min(rows, next.size() - begin);
      sampler.stage_score(next.subspan(begin, count), params);
      transfers_->send();
      sampler.score(logits, 0, static_cast<std::int32_t>(count));
      sampler.collect_scores(std::span(scores).subspan(begin, count));
    }
    return scores;
  }

  std::optional<cuda::Transfers> transfers_;
};

inline std::vector<float> random_logits(std::mt19937_64& random, std::size_t vocab, int kind) {
  std::normal_distribution<float> normal(0.0f, 3.0f);
  std::vector<float> logits(vocab);
  for (float& x : logits) {
    x = normal(random);
    if (kind == 1) x = std::round(x);  // many ties, both zeros among them
    if (kind == 2) x = 1.25f;          // all equal
    if (kind == 3 && random() % 3 == 0) x = -infinity;
    if (kind == 4 && random() % 5 == 0) x = std::numeric_limits<float>::quiet_NaN();
    if (kind == 5) x *= 40.0f;  // nearly one-hot
    if (kind == 6 && random() % 50 != 0) x = -infinity;
  }
  logits[random() % vocab] = 2.0f;  // at least one is finite
  return logits;
}

}  // namespace coppice::testing
