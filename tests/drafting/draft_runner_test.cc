// Texts that share the draft's passes: each has the trees, the draft KV and the number of passes
// that it would have alone.
#include "drafting/draft_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "drafting/expand_rerank.h"
#include "drafting/specinfer.h"
#include "reference/backend.h"
#include "reference/naive_device.h"
#include "reference/random_tokens.h"
#include "reference/tiny_model.h"

namespace coppice::draft_runner_test {
namespace {

using testing::Backend;
using testing::TemporaryFolder;
using testing::TinyModel;

constexpr std::int64_t vocab = 96;

// A draft, and all that its texts share.
struct Draft {
  Draft(const std::filesystem::path& dir, const Backend& backend, ModelOptions options,
        std::int32_t slots)
      : device(backend.make()),
        model(Model::load(dir, *device, options)),
        pool(*device, model->kv_layout(slots, 4)),
        noise(vocab),
        runner(*model, pool, make_host_draft_sampling(vocab, vocab, noise)) {}

  std::unique_ptr<Device> device;
  std::unique_ptr<Model> model;
  KvPool pool;
  NoiseCache noise;
  DraftRunner runner;
};

// What a text asks for.
struct Wish {
  std::unique_ptr<DraftPolicy> (*make)();
  GrowthLimits limits;
  DraftRunner::Setting setting;
  std::size_t prompt;
};

std::vector<Wish> wishes() {
  const auto dyspec = [] { return make_dyspec_policy(); };
  return {
      {dyspec, {12}, {{0.8}, AcceptanceRule::rejection}, 5},
      {dyspec, {9}, {{0.45}, AcceptanceRule::greedy}, 40},
      {[] { return make_chain_policy(); }, {5}, {{1.0, 20}, AcceptanceRule::coupled}, 1},
      {[] {
         return make_specinfer_policy({2, 2, 1});
       },
       {30},
       {{0.9, 0, 1.0, 0.0, 1.3}, AcceptanceRule::rejection},
       23},
      {[] {
         return make_expand_rerank_policy({3, 3}, AcceptanceRule::greedy);
       },
       {8},
       {{0.6}, AcceptanceRule::greedy},
       90},
      {dyspec, {0}, {{0.8}, AcceptanceRule::rejection}, 7},
  };
}

// A text and what a few steps make of it.
struct Text {
  Text(Draft& draft, const Wish& of, std::uint64_t number)
      : wish(of), policy(of.make()), state(vocab, draft.pool, &draft.pool), stream(number) {
    const auto seed = static_cast<std::uint32_t>(number + 1);
    for (const TokenId token : testing::random_tokens(of.prompt, vocab, seed)) state.append(token);
  }
  StepKey key() { return {7, stream, state.steps++, static_cast<std::uint64_t>(state.length())}; }
  void begin(Draft& draft) {
    step = draft.runner.begin(state, key(), wish.setting);
    trees.emplace_back().reset(state.tokens.back());
  }
  // Accepts the first child of the root, then second children, and adds a token.
  void end() {
    const TokenTree& tree = trees.back();
    std::vector<std::int32_t> path;
    std::int32_t at = 0, rank = 0;
    for (std::int32_t node = 1; node < tree.nodes(); ++node) {
      const auto n = static_cast<std::size_t>(node);
      if (tree.parent[n] != at || tree.rank[n] != rank) continue;
      path.push_back(node);
      at = node;
      rank = 1 - rank;
    }
    passes.push_back(step->passes());
    step->commit(tree, path);
    step.reset();
    for (const std::int32_t node : path) state.append(tree.token[static_cast<std::size_t>(node)]);
    state.append(static_cast<TokenId>((stream * 5 + trees.size()) % vocab));
  }

  const Wish& wish;
  std::unique_ptr<DraftPolicy> policy;
  SequenceState state;
  std::uint64_t stream;
  DraftRunner::Step step;
  std::vector<TokenTree> trees;
  std::vector<std::int64_t> passes;
};

std::vector<GrowingText> growing(std::vector<std::unique_ptr<Text>>& texts) {
  std::vector<GrowingText> all;
  for (const auto& text : texts) {
    all.push_back({*text->policy, *text->step, text->wish.limits, text->trees.back(), nullptr,
                   text->step.get()});
  }
  return all;
}

std::vector<std::unique_ptr<Text>> texts_of(Draft& draft, const std::vector<Wish>& all) {
  std::vector<std::unique_ptr<Text>> texts;
  for (std::size_t i = 0; i < all.size(); ++i) {
    texts.push_back(std::make_unique<Text>(draft, all[i], i));
  }
  return texts;
}

class DraftBatches : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (const auto why = testing::lacking(GetParam()); !why.empty()) GTEST_SKIP() << why;
    TinyModel tiny;
    tiny.vocab_size = vocab;
    tiny.logit_scale = 2.0;
    testing::write_tiny_model(folder_.path(), tiny);
  }

  static constexpr int steps = 4;

  // Returns how many passes were made beyond the one of each round.
  std::int64_t passes_beyond_one_a_round(const ModelOptions& options) {
    const std::vector<Wish> all = wishes();
    Draft shared(folder_.path(), GetParam(), options, 600);
    std::int64_t rounds = 0;
    {
      std::vector<std::unique_ptr<Text>> texts = texts_of(shared, all);
      for (int step = 0; step < steps; ++step) {
        for (const auto& text : texts) text->begin(shared);
        std::vector<GrowingText> trees = growing(texts);
        grow_trees(trees, shared.runner);
        std::int64_t most = 0;
        for (std::size_t i = 0; i < texts.size(); ++i) {
          EXPECT_EQ(trees[i].failure, nullptr);
          texts[i]->end();
          most = std::max(most, texts[i]->passes.back());
        }
        rounds += most;
      }
      std::int64_t alone_passes = 0;
      for (std::size_t i = 0; i < all.size(); ++i) {
        Draft own(folder_.path(), GetParam(), options, 600);
        Text alone(own, all[i], i);
        for (int step = 0; step < steps; ++step) {
          alone.begin(own);
          grow_tree(*alone.policy, *alone.step, all[i].limits, alone.trees.back());
          alone.end();
          expect_equal(texts[i]->trees[static_cast<std::size_t>(step)], alone.trees.back());
        }
        EXPECT_EQ(texts[i]->passes, alone.passes) << i;
        EXPECT_EQ(texts[i]->state.tokens, alone.state.tokens) << i;
        EXPECT_EQ(texts[i]->state.draft_slots.size(), alone.state.draft_slots.size()) << i;
        alone_passes += own.runner.passes();
      }
      EXPECT_LT(shared.runner.passes(), alone_passes);
    }
    EXPECT_EQ(shared.pool.free_slots(), 600);
    return shared.runner.passes() - rounds;
  }

  // The naive device computes every row by itself; products on a CPU may round otherwise where
  // there are more rows.
  void expect_equal(const TokenTree& together, const TokenTree& alone) {
    ASSERT_EQ(together.token, alone.token);
    EXPECT_EQ(together.parent, alone.parent);
    EXPECT_EQ(together.candidate, alone.candidate);
    const double tolerance = std::string(GetParam().name) == "naive" ? 0.0 : 1e-5;
    for (std::size_t n = 0; n < alone.token.size(); ++n) {
      EXPECT_NEAR(together.draft_prob[n], alone.draft_prob[n], tolerance);
    }
  }

  TemporaryFolder folder_;
};

INSTANTIATE_TEST_SUITE_P(Devices, DraftBatches,
                         ::testing::Values(Backend{"naive", testing::make_naive_device},
                                           Backend{"f32", [] { return testing::cpu(DType::f32); }}),
                         [](const auto& backend) { return backend.param.name; });

TEST_P(DraftBatches, AreAsEachTextAlone) {
  EXPECT_EQ(passes_beyond_one_a_round({.max_rows = 256, .max_kv_tokens = 2000}), 0);
}

// What does not fit one pass goes into several: by rows, by those with logits, and by the KV that
// they see.
TEST_P(DraftBatches, NeedNotFitOnePass) {
  EXPECT_GT(passes_beyond_one_a_round({.max_rows = 24, .max_kv_tokens = 2000}), 0);
  EXPECT_GT(passes_beyond_one_a_round({.max_logit_rows = 8, .max_kv_tokens = 2000}), 0);
}

}  // namespace
}  // namespace coppice::draft_runner_test
