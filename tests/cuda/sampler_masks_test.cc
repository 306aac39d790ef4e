// Rows with masks on the GPU are, bit for bit, rows whose other logits are minus infinity.
#include <gtest/gtest.h>

#include <memory>
#include <random>
#include <vector>

#include "cuda/sampler_rig.h"
#include "kernels/logits.h"

namespace coppice::sampler_masks_test {
namespace {

using testing::GuardedArray;
using testing::random_logits;

constexpr std::size_t vocab = 1003;  // not whole words, nor groups

// Of one token in `of`; the first mask of each test allows few.
std::shared_ptr<const TokenMask> random_mask(std::mt19937_64& random, std::size_t of) {
  TokenMask mask;
  // Of fewer tokens than there are logits: padding may never follow.
  mask.words.assign((vocab - 40) / 32, 0);
  for (std::uint32_t& word : mask.words) {
    for (int bit = 0; bit < 32; ++bit) {
      word |= static_cast<std::uint32_t>(random() % of == 0) << bit;
    }
  }
  mask.words[0] |= 2u;
  return std::make_shared<TokenMask>(std::move(mask));
}

class SamplerMasks : public testing::SamplerTest {
 protected:
  static std::vector<float> masked(const std::vector<float>& logits,
                                   const std::vector<std::shared_ptr<const TokenMask>>& masks) {
    std::vector<float> all;
    LogitsScratch scratch;
    for (std::size_t row = 0; row < masks.size(); ++row) {
      const auto of_row =
          masked_logits(std::span(logits).subspan(row * vocab, vocab), masks[row].get(), scratch);
      all.insert(all.end(), of_row.begin(), of_row.end());
    }
    return all;
  }
  static SamplingParams params_of(int trial) {
    SamplingParams params{trial % 4 == 0 ? 0.0 : 0.5 + 0.3 * (trial % 4)};
    if (trial % 3 == 1) params.top_k = 7;
    if (trial % 5 == 2) params.top_p = 0.8;
    return params;
  }
};

TEST_F(SamplerMasks, DrawnFromAreThoseThatMayFollow) {
  const auto sampler = make_sampler(vocab, vocab, 4, 4);
  std::mt19937_64 random(5);
  std::size_t children = 0;
  for (int trial = 0; trial < 60; ++trial) {
    std::vector<float> logits;
    std::vector<std::shared_ptr<const TokenMask>> masks;
    for (std::size_t row = 0; row < 3; ++row) {
      for (const float x : random_logits(random, vocab, trial % 4)) logits.push_back(x);
      logits[row * vocab + 1] = 0.5f;
      masks.push_back(row == 1 ? nullptr : random_mask(random, row == 0 ? 200 : 3));
    }
    testing::OneDraw batch;
    batch.key = {1, 2, static_cast<std::uint64_t>(trial), 3};
    batch.params = params_of(trial);
    batch.rule = static_cast<AcceptanceRule>(trial % 3);
    std::vector<DrawRow> rows, plain;
    for (std::int32_t row = 0; row < 3; ++row) {
      plain.push_back({row, row, 1, child_node_key(root_node_key, row)});
      rows.push_back(plain.back());
      rows.back().mask = masks[static_cast<std::size_t>(row)];
    }
    GuardedArray<float> device(logits.size());
    device.upload(logits);
    batch.rows = rows;
    const auto found = draw(*sampler, batch, device.data(), vocab);
    device.upload(masked(logits, masks));
    batch.rows = plain;
    const auto expected = draw(*sampler, batch, device.data(), vocab);
    for (std::size_t row = 0; row < 3; ++row) {
      ASSERT_EQ(found[row].size(), expected[row].size()) << trial;
      for (std::size_t c = 0; c < found[row].size(); ++c) {
        ASSERT_EQ(found[row][c].token, expected[row][c].token) << trial;
        ASSERT_EQ(found[row][c].prob, expected[row][c].prob) << trial;
        ASSERT_TRUE(masks[row] == nullptr || masks[row]->has(found[row][c].token));
        ++children;
      }
    }
  }
  EXPECT_GT(children, 1000u);
}

TEST_F(SamplerMasks, ARowThatNoTokenMayFollowHasNoChildren) {
  const auto sampler = make_sampler(vocab, vocab, 4, 4);
  std::mt19937_64 random(6);
  GuardedArray<float> device(vocab);
  device.upload(random_logits(random, vocab, 0));
  testing::OneDraw batch;
  batch.params = SamplingParams{1.0};
  DrawRow row{0, 0, 0, root_node_key};
  row.mask = std::make_shared<TokenMask>();
  batch.rows = {&row, 1};
  EXPECT_TRUE(draw(*sampler, batch, device.data(), vocab)[0].empty());
}

TEST_F(SamplerMasks, VerdictsAreThoseOfTokensThatMayFollow) {
  const auto sampler = make_sampler(vocab, vocab, 4, 4);
  std::mt19937_64 random(7);
  // A root with two children, the first of which has one.
  const std::vector<std::int32_t> parent = {-1, 0, 1, 0}, depth = {0, 1, 2, 1}, rank = {0, 0, 0, 1},
                                  store = {0, 1, -1, -1};
  int accepted = 0;
  for (int trial = 0; trial < 90; ++trial) {
    std::vector<float> logits, draft;
    std::vector<std::shared_ptr<const TokenMask>> masks;
    for (std::size_t row = 0; row < 4; ++row) {
      for (const float x : random_logits(random, vocab, trial % 3)) logits.push_back(x);
      logits[row * vocab + 1] = 3.0f;
      masks.push_back(row == 2 ? nullptr : random_mask(random, row == 0 ? 300 : 4));
    }
    draft = masked(logits, masks);  // D at rows 0 and 1 is near T
    testing::OneDraw drawn;
    drawn.key = {3, 1, static_cast<std::uint64_t>(trial), 9};
    drawn.params = SamplingParams{1.3};
    drawn.rule = static_cast<AcceptanceRule>(trial % 3);
    std::vector<DrawRow> rows = {{0, 0, 0, root_node_key},
                                 {1, 1, 1, child_node_key(root_node_key, 0)}};
    drawn.rows = rows;
    GuardedArray<float> of_draft(2 * vocab), of_target(4 * vocab);
    of_draft.upload(std::vector<float>(draft.begin(), draft.begin() + 2 * vocab));
    const auto tops = draw(*sampler, drawn, of_draft.data(), vocab);
    if (tops[0].size() < 2 || tops[1].empty()) continue;
    const std::vector<TokenId> token = {5, tops[0][0].token, tops[1][0].token, tops[0][1].token};
    testing::OneTree tree;
    tree.key = drawn.key;
    tree.params = params_of(trial);
    tree.rule = drawn.rule;
    tree.token = token;
    tree.parent = parent;
    tree.depth = depth;
    tree.rank = rank;
    tree.store = store;
    const auto judge = [&](const std::vector<float>& from, bool with_masks) {
      of_target.upload(from);
      stage_judge(*sampler, tree, with_masks ? masks : testing::ListedTree::Masks());
      transfers_->send();
      sampler->judge(of_target.data(), 4);
      std::vector<DeviceVerdict> verdict(1);
      sampler->collect_verdicts(verdict);
      return verdict[0];
    };
    const DeviceVerdict found = judge(logits, true), expected = judge(masked(logits, masks), false);
    ASSERT_EQ(found.bonus, expected.bonus) << trial;
    ASSERT_EQ(found.rows, expected.rows) << trial;
    const auto last = static_cast<std::size_t>(found.rows.empty() ? 0 : found.rows.back());
    ASSERT_TRUE(masks[last] == nullptr || masks[last]->has(found.bonus)) << trial;
    accepted += static_cast<int>(found.rows.size());
  }
  EXPECT_GT(accepted, 20);
}

}  // namespace
}  // namespace coppice::sampler_masks_test
