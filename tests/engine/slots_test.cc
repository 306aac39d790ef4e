// Every tree of up to seven nodes and every path through it: logits at each node equal those of
// the path run as a plain text, slots are kept and freed as accepted, nothing is moved, and the
// text goes on correctly from what was kept.
#include <gtest/gtest.h>

#include <set>

#include "engine/exact_logits.h"
#include "engine/pair.h"
#include "kernels/device.h"
#include "models/model.h"
#include "reference/all_trees.h"
#include "reference/pass_faults.h"
#include "verify/target_runner.h"

namespace coppice::testing {
namespace {

class Slots : public ::testing::Test {
 protected:
  Slots() {
    TinyModel tiny;
    if (on_cuda()) tiny.dtype = DType::bf16;
    write_tiny_model(folder_.path(), tiny);
    device_ = make_test_device();
    model_ = Model::load(folder_.path(), *device_);
    pool_ = std::make_unique<KvPool>(*device_, model_->kv_layout(64, 4));
    runner_ = std::make_unique<TargetRunner>(*model_, *pool_);
    exact_ = std::make_unique<ExactLogits>(folder_.path(), model_->config());
  }

  void expect_logits(std::span<const float> logits, const std::vector<TokenId>& text) {
    const ExactLogits::Comparison found = exact_->compare(logits, text);
    ASSERT_LT(found.error, found.tolerance);
  }

  TemporaryFolder folder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<TargetRunner> runner_;
  std::unique_ptr<ExactLogits> exact_;
};

TEST_F(Slots, KeptAndFreedForEveryTreeAndPath) {
  const std::vector<TokenId> prompt = {1, 50, 60, 70, 0};  // trees are rooted in token 0
  const SamplingParams greedy;
  std::int64_t cases = 0;
  for (std::int32_t nodes = 1; nodes <= 7; ++nodes) {
    for_each_tree(nodes, [&](const TokenTree& tree) {
      for (std::int32_t end = 0; end < nodes && !HasFatalFailure(); ++end) {
        ++cases;
        SequenceState state(96, *pool_, nullptr);
        for (const TokenId token : prompt) state.append(token);
        ASSERT_TRUE(runner_->prefill(state));
        const std::span<const KvSlot> slots = state.target_slots.all();
        const std::vector<KvSlot> before(slots.begin(), slots.end());
        ASSERT_EQ(before.size(), 4u);
        TargetRunner::Pass pass = runner_->pass(state, tree, greedy);
        ASSERT_TRUE(pass);
        ASSERT_EQ(pool_->free_slots(), 64 - 4 - nodes);

        std::vector<std::int32_t> path;
        for (std::int32_t n = end; n > 0; n = tree.parent[static_cast<std::size_t>(n)]) {
          path.insert(path.begin(), n);
        }
        std::vector<TokenId> text = prompt;
        expect_logits(runner_->text().logits(0), text);
        for (const std::int32_t n : path) {
          text.push_back(tree.token[static_cast<std::size_t>(n)]);
          expect_logits(runner_->text().logits(n), text);
        }

        pass->text().commit(path);
        pass = nullptr;
        const std::span<const KvSlot> kept = state.target_slots.all();
        ASSERT_EQ(kept.size(), before.size() + 1 + path.size());
        ASSERT_TRUE(std::equal(before.begin(), before.end(), kept.begin()));
        const std::set<KvSlot> distinct(kept.begin(), kept.end());
        ASSERT_EQ(distinct.size(), kept.size());
        ASSERT_EQ(pool_->free_slots(), 64 - static_cast<int>(kept.size()));

        // The next step stands on what was kept.
        for (std::size_t i = prompt.size(); i < text.size(); ++i) state.append(text[i]);
        state.append(33);
        text.push_back(33);
        TokenTree next;
        next.reset(33);
        pass = runner_->pass(state, next, greedy);
        ASSERT_TRUE(pass);
        expect_logits(runner_->text().logits(0), text);
      }
    });
  }
  ASSERT_EQ(pool_->free_slots(), 64);
  EXPECT_EQ(cases, 1 + 2 + 2 * 3 + 6 * 4 + 24 * 5 + 120 * 6 + 720 * 7);
}

TEST_F(Slots, OnePassAtATime) {
  SequenceState state(96, *pool_, nullptr);
  for (const TokenId token : {1, 50, 0}) state.append(token);
  ASSERT_TRUE(runner_->prefill(state));
  const TokenTree tree = tree_with_parents({-1, 0, 0});
  const auto pass = runner_->pass(state, tree, SamplingParams{});
  ASSERT_TRUE(pass);
  EXPECT_THROW(static_cast<void>(runner_->pass(state, tree, SamplingParams{})), Error);
  EXPECT_EQ(pool_->free_slots(), 64 - 2 - 3);
}

TEST_F(Slots, RotationByIndexIsNoticed) {
  const std::vector<TokenId> prompt = {1, 50, 60, 70, 0};
  SequenceState state(96, *pool_, nullptr);
  for (const TokenId token : prompt) state.append(token);
  ASSERT_TRUE(runner_->prefill(state));
  runner_->change_passes(faulty_passes(PassFault::rope_by_index));
  // Node 2 is the root's second child: its row differs from its depth.
  const auto pass = runner_->pass(state, tree_with_parents({-1, 0, 0}), SamplingParams{});
  ASSERT_TRUE(pass);
  std::vector<TokenId> text = prompt;
  text.push_back(2);
  EXPECT_GT(exact_->compare(runner_->text().logits(2), text).error, on_cuda() ? 0.02 : 1e-3);
}

}  // namespace
}  // namespace coppice::testing
