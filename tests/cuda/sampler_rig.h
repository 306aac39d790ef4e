// A CudaSampler between host arrays, for its tests.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <span>
#include <vector>

#include "cuda/guarded_array.h"
#include "kernels/cuda/sampling/sampler.h"

namespace coppice::testing {

inline constexpr float infinity = std::numeric_limits<float>::infinity();

/// Rows of one text, as a batch of their own.
struct OneDraw : DrawText {
  std::span<const DrawRow> rows;
  DrawBatch batch() const { return {{static_cast<const DrawText*>(this), 1}, rows}; }
};
/// Keys of nodes by their parents and ranks, as TokenTree has them. A node whose parent does not
/// stand before it gets the root's.
inline std::vector<std::uint64_t> keys_of(std::span<const std::int32_t> parent,
                                          std::span<const std::int32_t> rank) {
  std::vector<std::uint64_t> keys;
  for (std::size_t n = 0; n < parent.size(); ++n) {
    const auto from = static_cast<std::size_t>(parent[n]);  // -1: beyond all
    keys.push_back(from < n ? child_node_key(keys[from], rank[n]) : root_node_key);
  }
  return keys;
}

/// Likewise its tree.
struct OneTree : JudgeText {
  std::span<const TokenId> token;
  std::span<const std::int32_t> parent, depth, rank, store;
  std::span<const std::uint8_t> certain;
  mutable std::vector<std::uint64_t> keys = {};  ///< of the last batch()
  JudgeBatch batch() const {
    keys = keys_of(parent, rank);
    return {
        {static_cast<const JudgeText*>(this), 1}, token, parent, depth, rank, keys, store, certain};
  }
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
