// Rows with bias and penalties of the new text's tokens on the GPU are, bit for bit, rows whose
// logits the host has changed likewise.
#include <gtest/gtest.h>

#include <random>
#include <vector>

#include "cuda/sampler_rig.h"
#include "kernels/logits.h"

namespace coppice::sampler_terms_test {
namespace {

using testing::GuardedArray;
using testing::random_logits;

constexpr std::size_t vocab = 1003;  // not whole words, nor groups
constexpr std::size_t rows = 4;
// A root with two children, the first of which has one.
const std::vector<std::int32_t> parent = {-1, 0, 1, 0}, depth = {0, 1, 2, 1}, rank = {0, 0, 0, 1};

std::size_t index_of(std::int32_t n) { return static_cast<std::size_t>(n); }

class SamplerTerms : public testing::SamplerTest {
 protected:
  struct Text {
    TokenCounts counts{vocab}, new_counts;  // of none: no penalty counts
    std::vector<TokenBias> bias;
    std::vector<TokenId> token;  // of the nodes
    SamplingParams params{0.8};
  };

  // Few tokens, so that they meet in text, path and bias.
  Text random_text(int trial) {
    Text text;
    const auto some = [&] { return static_cast<TokenId>(random_() % 40 * 25); };
    for (int i = 0; i < 30; ++i) text.counts.add(some());
    if (trial % 3 != 0) {
      text.new_counts = TokenCounts(vocab);
      for (int i = 0; i < 12; ++i) {
        const TokenId token = some();
        text.new_counts.add(token);
        text.counts.add(token);
      }
      text.params.frequency_penalty = trial % 2 == 0 ? 0.7 : -0.3;
      text.params.presence_penalty = trial % 5 == 0 ? 0.0 : 0.45;
    }
    if (trial % 4 != 1) {
      for (TokenId token = some() % 50; token < static_cast<TokenId>(vocab); token += 75) {
        text.bias.push_back({token, static_cast<float>(random_() % 9) - 4.5f});
      }
    }
    if (trial % 2 == 1) text.params.repetition_penalty = 1.4;
    for (std::size_t node = 0; node < rows; ++node) text.token.push_back(some());
    if (trial % 3 == 1) text.token[2] = text.token[1];  // twice on one path
    return text;
  }

  // What the kernels have to make of a row, in the same steps.
  static std::vector<float> changed(const Text& text, std::int32_t node,
                                    std::span<const float> logits) {
    std::vector<float> out(logits.begin(), logits.end());
    for (const TokenBias& of : text.bias) out[index_of(of.token)] += of.bias;
    TokenCounts seen = text.counts, fresh = text.new_counts;
    for (std::int32_t n = node; parent[index_of(n)] >= 0; n = parent[index_of(n)]) {
      seen.add(text.token[index_of(n)]);
      if (fresh) fresh.add(text.token[index_of(n)]);
    }
    const auto repetition = static_cast<float>(text.params.repetition_penalty),
               frequency = static_cast<float>(text.params.frequency_penalty),
               presence = static_cast<float>(text.params.presence_penalty);
    for (std::size_t t = 0; t < vocab; ++t) {
      float& x = out[t];
      if (repetition != 1.0f && seen.counts()[t] > 0)
        x = x > 0.0f ? x / repetition : x * repetition;
      if (!fresh || fresh.counts()[t] == 0) continue;
      const float times = static_cast<float>(fresh.counts()[t]) * frequency;
      x = (x - times) - presence;
    }
    return out;
  }

  PenaltyText penalty_of(const Text& text) const {
    return {&text.counts, text.token, parent, text.new_counts ? &text.new_counts : nullptr,
            text.bias};
  }

  std::vector<float> random_rows(int trial) {
    std::vector<float> logits;
    for (std::size_t row = 0; row < rows; ++row) {
      for (const float x : random_logits(random_, vocab, trial % 3)) logits.push_back(x);
      logits[row * vocab + 1] = 3.0f;
    }
    return logits;
  }
  static std::vector<float> all_changed(const Text& text, const std::vector<float>& logits) {
    std::vector<float> all;
    for (std::size_t row = 0; row < rows; ++row) {
      const auto of = changed(text, static_cast<std::int32_t>(row),
                              std::span(logits).subspan(row * vocab, vocab));
      all.insert(all.end(), of.begin(), of.end());
    }
    return all;
  }
  static SamplingParams without_penalties(SamplingParams params) {
    params.repetition_penalty = 1.0;
    params.frequency_penalty = params.presence_penalty = 0.0;
    return params;
  }

  std::mt19937_64 random_{11};
};

TEST_F(SamplerTerms, ChildrenAreDrawnFromChangedRows) {
  const auto sampler = make_sampler(vocab, vocab, rows, rows);
  GuardedArray<float> device(rows * vocab);
  std::size_t children = 0;
  for (int trial = 0; trial < 120; ++trial) {
    const Text text = random_text(trial);
    const PenaltyText penalty = penalty_of(text);
    const std::vector<float> logits = random_rows(trial);
    testing::OneDraw batch;
    batch.key = {1, 2, static_cast<std::uint64_t>(trial), 3};
    batch.params = text.params;
    batch.rule = trial % 2 == 0 ? AcceptanceRule::rejection : AcceptanceRule::coupled;
    batch.penalty = &penalty;
    std::vector<DrawRow> of;
    for (std::int32_t row = 0; row < static_cast<std::int32_t>(rows); ++row) {
      of.push_back({row, row, depth[index_of(row)], child_node_key(root_node_key, row)});
    }
    batch.rows = of;
    device.upload(logits);
    const auto found = draw(*sampler, batch, device.data(), vocab);
    device.upload(all_changed(text, logits));
    batch.params = without_penalties(text.params);
    batch.penalty = nullptr;
    const auto expected = draw(*sampler, batch, device.data(), vocab);
    for (std::size_t row = 0; row < rows; ++row) {
      ASSERT_EQ(found[row].size(), expected[row].size()) << trial;
      for (std::size_t c = 0; c < found[row].size(); ++c) {
        ASSERT_EQ(found[row][c].token, expected[row][c].token) << trial << ", row " << row;
        ASSERT_EQ(found[row][c].prob, expected[row][c].prob) << trial << ", row " << row;
        ++children;
      }
    }
  }
  EXPECT_GT(children, 5000u);
}

TEST_F(SamplerTerms, TreesAreJudgedByChangedRows) {
  const auto sampler = make_sampler(vocab, 0, rows, 0);
  GuardedArray<float> device(rows * vocab);
  const std::vector<std::int32_t> store(rows, -1);
  int accepted = 0;
  for (int trial = 0; trial < 120; ++trial) {
    Text text = random_text(trial);
    const bool greedy = trial % 2 == 0;
    text.params.temperature = greedy ? 0.0 : 0.9;
    std::vector<float> logits = random_rows(trial);
    // Children that are likely, but for what changes their logits.
    for (const std::size_t row : {0, 1}) {
      logits[row * vocab + index_of(text.token[row + 1])] = 9.0f;
    }
    const PenaltyText penalty = penalty_of(text);
    testing::OneTree tree;
    tree.key = {3, 1, static_cast<std::uint64_t>(trial), 9};
    tree.rule = greedy ? AcceptanceRule::greedy : AcceptanceRule::coupled;
    tree.token = text.token;
    tree.parent = parent;
    tree.depth = depth;
    tree.rank = rank;
    tree.store = store;
    if (text.token[1] == text.token[3]) continue;  // no tree
    const auto judge = [&](const std::vector<float>& from, const SamplingParams& params,
                           const PenaltyText* with) {
      device.upload(from);
      tree.params = params;
      tree.penalty = with;
      stage_judge(*sampler, tree);
      transfers_->send();
      sampler->judge(device.data(), static_cast<std::int32_t>(rows));
      std::vector<DeviceVerdict> verdict(1);
      sampler->collect_verdicts(verdict);
      return verdict[0];
    };
    const std::vector<float> whole = all_changed(text, logits);
    const DeviceVerdict found = judge(logits, text.params, &penalty);
    EXPECT_EQ(device.download(), whole) << "the host reads them, too";
    const DeviceVerdict expected = judge(whole, without_penalties(text.params), nullptr);
    ASSERT_EQ(found.bonus, expected.bonus) << trial;
    ASSERT_EQ(found.rows, expected.rows) << trial;
    accepted += static_cast<int>(found.rows.size());
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace coppice::sampler_terms_test
