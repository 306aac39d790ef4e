// A text's first token: that it comes out of the prompt's own last pass, that this pass is the same
// as prefill and a plain step, for every tree that rides in it too, and what statistics say of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <iostream>
#include <numeric>
#include <set>
#include <utility>

#include "engine/engine_impl.h"
#include "engine/exact_logits.h"
#include "engine/pair.h"
#include "reference/all_trees.h"
#include "reference/pass_faults.h"

namespace coppice::testing {
namespace {

/// A model that writes down its passes.
class CountingModel final : public Model {
 public:
  explicit CountingModel(Model& model) : model_(model) {}
  const ModelConfig& config() const override { return model_.config(); }
  Device& device() const override { return model_.device(); }
  const ModelOptions& options() const override { return model_.options(); }
  std::int32_t max_positions() const override { return model_.max_positions(); }
  std::size_t weight_bytes_read() const override { return model_.weight_bytes_read(); }
  KvLayout kv_layout(std::int32_t slots, std::int32_t page_size) const override {
    return model_.kv_layout(slots, page_size);
  }
  const float* forward(const ForwardBatch& batch, KvPool& pool, PassEpilogue* epilogue) override {
    rows.push_back(static_cast<std::int32_t>(batch.tokens.size()));
    logit_rows.push_back(static_cast<std::int32_t>(batch.logit_rows.size()));
    return model_.forward(batch, pool, epilogue);
  }

  std::vector<std::int32_t> rows, logit_rows;  ///< by pass

 private:
  Model& model_;
};

std::vector<TokenId> some_tokens(std::int32_t count, std::int32_t seed = 0) {
  std::vector<TokenId> tokens;
  for (std::int32_t i = 0; i < count; ++i) tokens.push_back(3 + (i * 37 + i / 7 + seed * 11) % 90);
  return tokens;
}

std::vector<KvSlot> slots_of(const SequenceState& state) {
  const std::span<const KvSlot> slots = state.target_slots.all();
  return {slots.begin(), slots.end()};
}

// --- the pass alone ---------------------------------------------------------------------------

class PrefillRows : public ::testing::Test {
 protected:
  static constexpr std::int32_t slots = 64, most_rows = 12;

  PrefillRows() {
    TinyModel tiny;
    if (on_cuda()) tiny.dtype = DType::bf16;
    write_tiny_model(folder_.path(), tiny);
    device_ = make_test_device();
    model_ = Model::load(folder_.path(), *device_, {.max_rows = most_rows, .max_logit_rows = 8});
    counting_ = std::make_unique<CountingModel>(*model_);
    pool_ = std::make_unique<KvPool>(*device_, model_->kv_layout(slots, 4));
    runner_ = std::make_unique<TargetRunner>(*counting_, *pool_);
    exact_ = std::make_unique<ExactLogits>(folder_.path(), model_->config());
  }

  /// A text of which all but the last `prefill` tokens before the root have KV.
  SequenceState text_with(const std::vector<TokenId>& tokens, std::int32_t prefill) {
    SequenceState state(96, *pool_, nullptr);
    const auto known = tokens.size() - static_cast<std::size_t>(prefill);
    for (std::size_t i = 0; i < known; ++i) state.append(tokens[i]);
    EXPECT_TRUE(runner_->prefill(state));
    for (std::size_t i = known; i < tokens.size(); ++i) state.append(tokens[i]);
    EXPECT_EQ(TargetRunner::prefill_rows(state), prefill);
    return state;
  }

  ExactLogits::Comparison compare_after(const std::vector<TokenId>& text, std::int32_t node) {
    return exact_->compare(runner_->text().logits(node), text);
  }
  void expect_logits(const std::vector<TokenId>& text, std::int32_t node) {
    const ExactLogits::Comparison found = compare_after(text, node);
    ASSERT_LT(found.error, found.tolerance);
  }

  TemporaryFolder folder_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<CountingModel> counting_;
  std::unique_ptr<KvPool> pool_;
  std::unique_ptr<TargetRunner> runner_;
  std::unique_ptr<ExactLogits> exact_;
};

TEST_F(PrefillRows, EveryTreeRidesBehindThem) {
  const std::vector<TokenId> prompt = {1, 50, 60, 70, 0};  // trees are rooted in token 0
  const SamplingParams greedy;
  for (std::int32_t nodes = 1; nodes <= 5; ++nodes) {
    for_each_tree(nodes, [&](const TokenTree& tree) {
      for (std::int32_t prefill = 0; prefill <= 4 && !HasFatalFailure(); ++prefill) {
        const std::int32_t end = (prefill * 3 + tree.parent.back() + nodes) % nodes;
        SequenceState state = text_with(prompt, prefill);
        const std::vector<KvSlot> before = slots_of(state);
        TargetRunner::Pass pass = runner_->pass(state, tree, greedy);
        ASSERT_TRUE(pass);
        ASSERT_EQ(runner_->text().prefill_rows(), prefill);
        ASSERT_EQ(counting_->rows.back(), prefill + nodes);
        ASSERT_EQ(counting_->logit_rows.back(), nodes);
        ASSERT_EQ(pool_->free_slots(), slots - 4 - nodes);

        std::vector<std::vector<TokenId>> text_of(static_cast<std::size_t>(nodes), prompt);
        for (std::int32_t n = 1; n < nodes; ++n) {
          const auto i = static_cast<std::size_t>(n);
          text_of[i] = text_of[static_cast<std::size_t>(tree.parent[i])];
          text_of[i].push_back(tree.token[i]);
        }
        for (std::int32_t n = 0; n < nodes; ++n) {
          expect_logits(text_of[static_cast<std::size_t>(n)], n);
        }

        std::vector<std::int32_t> path;
        for (std::int32_t n = end; n > 0; n = tree.parent[static_cast<std::size_t>(n)]) {
          path.insert(path.begin(), n);
        }
        pass->text().commit(path);
        pass = nullptr;
        const std::vector<KvSlot> kept = slots_of(state);
        ASSERT_EQ(kept.size(), prompt.size() + path.size());
        ASSERT_TRUE(std::equal(before.begin(), before.end(), kept.begin()));
        const std::set<KvSlot> distinct(kept.begin(), kept.end());
        ASSERT_EQ(distinct.size(), kept.size());
        ASSERT_EQ(pool_->free_slots(), slots - static_cast<int>(kept.size()));

        // In order: a text cut anywhere goes on correctly from the slots before the cut.
        for (const std::int32_t n : path) state.append(tree.token[static_cast<std::size_t>(n)]);
        for (state.append(33); state.length() > 1; state.cut(state.length() - 1)) {
          TokenTree next;
          next.reset(state.tokens.back());
          ASSERT_EQ(TargetRunner::prefill_rows(state), 0);
          const auto after = runner_->pass(state, next, greedy);
          ASSERT_TRUE(after);
          expect_logits(state.tokens, 0);
        }
      }
    });
  }
  EXPECT_EQ(pool_->free_slots(), slots);
}

// What the test above must notice.
TEST_F(PrefillRows, FaultsAreNoticed) {
  const std::vector<TokenId> prompt = {1, 50, 60, 70, 0};
  for (const PassFault fault : {PassFault::none, PassFault::prefill_rows_ahead,
                                PassFault::prefill_rows_hidden, PassFault::logits_by_batch}) {
    SequenceState state = text_with(prompt, 3);
    runner_->change_passes(faulty_passes(fault));
    const auto pass = runner_->pass(state, tree_with_parents({-1, 0, 0}), SamplingParams{});
    ASSERT_TRUE(pass);
    runner_->change_passes({});
    const ExactLogits::Comparison found = compare_after(prompt, 0);
    if (fault == PassFault::none) {
      EXPECT_LT(found.error, found.tolerance);
    } else {
      EXPECT_GT(found.error, on_cuda() ? 0.02 : 1e-3) << static_cast<int>(fault);
    }
  }
}

TEST_F(PrefillRows, PromptsAreDividedIntoAsFewPassesAsTheyNeed) {
  for (const std::int32_t known : {0, 1, 5}) {
    for (std::int32_t length = known + 1; length <= known + 3 * most_rows + 1; ++length) {
      const std::vector<TokenId> tokens = some_tokens(length);
      SequenceState state = text_with(tokens, length - 1 - known);
      counting_->rows.clear();
      ASSERT_TRUE(runner_->prefill_to_last_pass(state));
      const std::int32_t prefill = TargetRunner::prefill_rows(state);
      ASSERT_LT(prefill, most_rows);
      ASSERT_EQ(pool_->free_slots(), slots - state.target_slots.size());
      TokenTree root;
      root.reset(tokens.back());
      const auto pass = runner_->pass(state, root, SamplingParams{});
      ASSERT_TRUE(pass);
      const std::vector<std::int32_t>& rows = counting_->rows;
      EXPECT_EQ(std::accumulate(rows.begin(), rows.end(), 0), length - known);
      EXPECT_EQ(static_cast<std::int32_t>(rows.size()),
                (length - known + most_rows - 1) / most_rows);
      EXPECT_EQ(prefill == 0, length - known == 1) << "the root has company where there is any";
      expect_logits(tokens, 0);
      pass->text().commit({});
      ASSERT_EQ(state.target_slots.size(), length);
    }
  }
}

TEST_F(PrefillRows, WithoutSlotsNothingChanges) {
  KvSlots others(pool_.get());
  ASSERT_TRUE(others.take(slots - 4));
  SequenceState state = text_with(some_tokens(6), 4);  // one slot; five are wanted, three are free
  const std::vector<KvSlot> before = slots_of(state);
  TokenTree root;
  root.reset(state.tokens.back());
  EXPECT_FALSE(runner_->pass(state, root, SamplingParams{}));
  EXPECT_EQ(slots_of(state), before);
  EXPECT_EQ(pool_->free_slots(), 3);
  // A pass too large for the model gives its slots back.
  others.cut(0);
  for (const TokenId token : some_tokens(10)) state.append(token);
  EXPECT_THROW(static_cast<void>(runner_->pass(state, root, SamplingParams{})), Error);
  EXPECT_EQ(pool_->free_slots(), slots - 1);
}

// --- the engine -------------------------------------------------------------------------------

class FirstToken : public ::testing::Test {
 protected:
  FirstToken() : pair_(shape()), engine_(Engine::load(pair_.options())) {
    Engine::Impl& impl = inside(engine_);
    target_ = std::make_unique<CountingModel>(*impl.target.model);
    impl.target_runner = std::make_unique<TargetRunner>(*target_, *impl.target.pool);
    chunk_ = impl.target.model->options().max_rows;
  }
  static TinyModel shape() {
    TinyModel model;
    model.context_length = 4096;  // a GPU takes 1024 rows a pass
    model.eos_tokens = {};
    return model;
  }
  static GenerateOptions request(Speculation speculation, double temperature,
                                 std::int32_t tokens = 12) {
    GenerateOptions options;
    options.speculation = std::move(speculation);
    options.sampling.temperature = temperature;
    options.acceptance = temperature > 0.0 ? Acceptance::coupled : Acceptance::rejection;
    options.seed = 17;
    options.max_new_tokens = tokens;
    return options;
  }
  /// Prefill of all but the last token, then one plain step a token.
  std::vector<TokenId> plain_text(const std::vector<TokenId>& prompt, double temperature) {
    const Generation g = KeptPrompt(engine_, prompt).generate(request(Plain{}, temperature));
    EXPECT_EQ(g.statistics.prefill_tokens, 0);
    EXPECT_EQ(g.statistics.steps, 12);
    return g.tokens;
  }

  /// What generate() did before its callback first saw tokens.
  struct Before {
    std::vector<std::int32_t> target_rows;
    std::int64_t draft_passes = 0;
    std::size_t tokens = 0;
  };
  template <typename Text>  // an Engine or a Sequence
  Generation generate(Text& text, const std::vector<TokenId>& prompt,
                      const GenerateOptions& options, Before& before) {
    const std::int64_t draft_passes = inside(engine_).draft_runner->passes();
    target_->rows.clear();
    before = {};
    return text.generate(prompt, options, [&](const Piece& piece) {
      if (before.tokens == 0) {
        before = {target_->rows, inside(engine_).draft_runner->passes() - draft_passes,
                  piece.tokens.size()};
      }
      return true;
    });
  }
  std::int32_t passes_for(std::int32_t rows) const { return (rows + chunk_ - 1) / chunk_; }
  static std::int32_t sum(const std::vector<std::int32_t>& rows) {
    return std::accumulate(rows.begin(), rows.end(), 0);
  }

  TinyPair pair_;
  std::unique_ptr<CountingModel> target_;
  Engine engine_;
  std::int32_t chunk_ = 0;
};

TEST_F(FirstToken, ComesWithThePromptAndTheTextIsThePlainOne) {
  double judged = 0.0, steps = 0.0;
  for (const std::int32_t length :
       {1, 2, 3, chunk_ - 1, chunk_, chunk_ + 1, 2 * chunk_, 2 * chunk_ + 1}) {
    const std::vector<TokenId> prompt = some_tokens(length);
    for (const double temperature : {0.0, 0.9}) {
      const std::vector<TokenId> plain = plain_text(prompt, temperature);
      for (const Speculation& speculation :
           std::vector<Speculation>{Plain{}, Dyspec{8}, Chain{8}}) {
        Before before;
        const Generation g = generate(engine_, prompt, request(speculation, temperature), before);
        if (!on_cuda()) {  // near-ties of bf16: identity_test.cc counts them
          EXPECT_EQ(g.tokens, plain) << length << " " << name_of(speculation) << " " << temperature;
        }
        expect_nothing_leaked(engine_);
        const Statistics& s = g.statistics;
        EXPECT_EQ(s.prefill_tokens, length > 1 ? 1 : 0);
        EXPECT_EQ(s.prompt_tokens, length);
        EXPECT_NEAR(s.emitted_per_step * static_cast<double>(s.steps), 12 - s.prefill_tokens, 1e-9);
        if (length == 1) continue;  // nothing to come with
        EXPECT_EQ(static_cast<std::int32_t>(before.target_rows.size()), passes_for(length));
        EXPECT_EQ(sum(before.target_rows), length);
        EXPECT_EQ(before.draft_passes, 0);
        EXPECT_EQ(before.tokens, 1u);
        EXPECT_EQ(static_cast<std::int64_t>(target_->rows.size()), passes_for(length) + s.steps);
        if (std::holds_alternative<Plain>(speculation)) {
          EXPECT_EQ(s.steps, 11);
        } else {
          EXPECT_GT(s.draft_passes, 0);
          judged += s.accepted_length * static_cast<double>(s.steps);
          steps += static_cast<double>(s.steps);
        }
      }
    }
  }
  EXPECT_GT(judged, 1.1 * steps) << "speculation was not exercised";
}

TEST_F(FirstToken, ComesWithWhatASequenceLacks) {
  for (const double temperature : {0.0, 0.9}) {
    for (const std::int32_t more : {1, 2, 6, chunk_ - 1, chunk_, chunk_ + 3}) {
      const std::vector<TokenId> first = some_tokens(9), second = some_tokens(more, 3);
      {
        Sequence sequence = engine_.new_sequence();
        sequence.generate(first, request(Dyspec{8}, temperature));
        std::vector<TokenId> whole(sequence.tokens().begin(), sequence.tokens().end());
        EXPECT_EQ(inside(engine_).target.pool->layout().slots() -
                      inside(engine_).target.pool->free_slots(),
                  static_cast<std::int32_t>(whole.size()) - 1);
        whole.insert(whole.end(), second.begin(), second.end());
        Before before;
        const Generation g = generate(sequence, second, request(Dyspec{8}, temperature), before);
        // The last token before has no KV either.
        EXPECT_EQ(sum(before.target_rows), more + 1);
        EXPECT_EQ(static_cast<std::int32_t>(before.target_rows.size()), passes_for(more + 1));
        EXPECT_EQ(before.draft_passes, 0);
        EXPECT_EQ(g.statistics.prefill_tokens, 1);
        EXPECT_EQ(inside(engine_).target.pool->layout().slots() -
                      inside(engine_).target.pool->free_slots(),
                  static_cast<std::int32_t>(sequence.tokens().size()) - 1);
        if (!on_cuda()) {
          EXPECT_EQ(g.tokens, plain_text(whole, temperature)) << more;
        }
      }
      expect_nothing_leaked(engine_);
    }
    // Where nothing is missing a tree comes first.
    const std::vector<TokenId> prompt = some_tokens(9);
    bool first = true;
    inside(engine_).observer = [&](const StepView& view) {
      EXPECT_TRUE(view.is_step());
      if (std::exchange(first, false)) {
        EXPECT_GT(view.tree.size(), 0);
      }
    };
    const Generation g = KeptPrompt(engine_, prompt).generate(request(Dyspec{8}, temperature));
    inside(engine_).observer = {};
    EXPECT_EQ(g.statistics.prefill_tokens, 0);
    if (!on_cuda()) {
      EXPECT_EQ(g.tokens, plain_text(prompt, temperature));
    }
  }
  expect_nothing_leaked(engine_);
}

// The comparisons above are able to fail.
TEST_F(FirstToken, FaultsChangeTheText) {
  for (const PassFault fault : {PassFault::prefill_rows_ahead, PassFault::prefill_rows_hidden,
                                PassFault::logits_by_batch}) {
    int changed = 0;
    for (const std::int32_t length : {5, 9, 20, chunk_ + 1}) {
      for (std::int32_t seed = 0; seed < 5; ++seed) {
        const std::vector<TokenId> prompt = some_tokens(length, seed);
        const std::vector<TokenId> plain = plain_text(prompt, 0.0);
        inside(engine_).target_runner->change_passes(faulty_passes(fault));
        changed += engine_.generate(prompt, request(Plain{}, 0.0)).tokens != plain ? 1 : 0;
        inside(engine_).target_runner->change_passes({});
      }
    }
    std::cout << "fault " << static_cast<int>(fault) << ": " << changed << " of 20 texts changed\n";
    EXPECT_GE(changed, 5) << static_cast<int>(fault);
  }
}

// Plain sampling under rejection too: the noise is the step's that it was.
TEST_F(FirstToken, UsesTheNoiseOfAStep) {
  if (on_cuda()) GTEST_SKIP() << "near-ties of bf16: identity_test.cc counts them";
  GenerateOptions options = request(Plain{}, 0.9, 30);
  options.acceptance = Acceptance::rejection;
  for (options.seed = 0; options.seed < 20; ++options.seed) {
    const std::vector<TokenId> prompt = some_tokens(7, static_cast<std::int32_t>(options.seed));
    EXPECT_EQ(engine_.generate(prompt, options).tokens,
              KeptPrompt(engine_, prompt).generate(options).tokens);
  }
}

TEST_F(FirstToken, IsNoStep) {
  const std::vector<TokenId> prompt = some_tokens(9);
  for (const Speculation& speculation : std::vector<Speculation>{Plain{}, Dyspec{8}}) {
    const Generation g = engine_.generate(prompt, request(speculation, 0.9, 1));
    const Statistics& s = g.statistics;
    EXPECT_EQ(g.tokens.size(), 1u);
    EXPECT_EQ(g.finish_reason, FinishReason::length);
    EXPECT_EQ(s.prefill_tokens, 1);
    EXPECT_EQ(s.steps, 0);
    EXPECT_EQ(s.draft_passes, 0) << "the draft has nothing to do";
    EXPECT_GT(s.seconds.prefill, 0.0);
    for (const double zero :
         {s.accepted_length, s.emitted_per_step, s.tree_size_mean, s.decode_tokens_per_second,
          s.seconds.draft, s.seconds.verify, s.seconds.sampling}) {
      EXPECT_EQ(zero, 0.0);
    }
    EXPECT_GT(s.tokens_per_second, 0.0);
  }
  // A plain text's decoding: its time and its tokens are those of the steps.
  const Statistics s = engine_.generate(prompt, request(Plain{}, 0.0, 2)).statistics;
  EXPECT_EQ(s.steps, 1);
  EXPECT_EQ(s.accepted_length, 1.0);
  EXPECT_EQ(s.emitted_per_step, 1.0);
  EXPECT_NEAR(s.decode_tokens_per_second * s.decode_seconds(), 1.0, 1e-6);
}

TEST_F(FirstToken, EndsTextsAsOthersDo) {
  const std::vector<TokenId> prompt = some_tokens(9);
  const TokenId first = engine_.generate(prompt, request(Plain{}, 0.0, 1)).tokens.at(0);
  // Cancelled.
  const Generation cut =
      engine_.generate(prompt, request(Dyspec{8}, 0.0), [](const Piece&) { return false; });
  EXPECT_EQ(cut.finish_reason, FinishReason::cancelled);
  EXPECT_EQ(cut.tokens, (std::vector<TokenId>{first}));
  EXPECT_EQ(cut.statistics.draft_passes, 0);
  expect_nothing_leaked(engine_);
  // A callback that throws.
  EXPECT_THROW(engine_.generate(prompt, request(Dyspec{8}, 0.0),
                                [](const Piece&) -> bool { throw std::runtime_error("mine"); }),
               std::runtime_error);
  expect_nothing_leaked(engine_);
  // An end token.
  TinyModel ending = shape();
  ending.eos_tokens = {first};
  const TinyPair pair(ending);
  Engine engine = Engine::load(pair.options());
  const Generation none = engine.generate(prompt, request(Dyspec{8}, 0.0));
  EXPECT_EQ(none.finish_reason, FinishReason::eos);
  EXPECT_TRUE(none.tokens.empty());
  EXPECT_EQ(none.statistics.prefill_tokens, 0);
  EXPECT_EQ(none.statistics.steps, 0);
  EXPECT_EQ(none.statistics.emitted_per_step, 0.0);
  expect_nothing_leaked(engine);
  // The context's last place, with room in one pass and without.
  for (const std::int32_t context : {40, chunk_ + 3}) {
    TinyModel small = shape();
    small.context_length = context;
    const TinyPair short_pair(small);
    Engine short_engine = Engine::load(short_pair.options());
    const Generation full =
        short_engine.generate(some_tokens(context - 1), request(Dyspec{8}, 0.0));
    EXPECT_EQ(full.finish_reason, FinishReason::context);
    EXPECT_EQ(full.tokens.size(), 1u);
    EXPECT_EQ(full.statistics.steps, 0);
    expect_nothing_leaked(short_engine);
  }
}

TEST_F(FirstToken, NeedsTheWholePromptsMemory) {
  EngineOptions load = pair_.options();
  load.kv_tokens = 48;
  Engine engine = Engine::load(load);
  const auto all = some_tokens(48);
  const Generation last = engine.generate(all, request(Dyspec{8}, 0.0));
  EXPECT_EQ(last.finish_reason, FinishReason::memory);
  EXPECT_EQ(last.tokens.size(), 1u);
  expect_nothing_leaked(engine);
  {
    const KeptPrompt holder(engine, some_tokens(25));  // whose memory is not an idle sequence's
    Sequence other = engine.new_sequence();
    const Generation none = other.generate(some_tokens(30), request(Dyspec{8}, 0.0));
    EXPECT_EQ(none.finish_reason, FinishReason::memory);
    EXPECT_TRUE(none.tokens.empty());
    EXPECT_EQ(none.statistics.prefill_tokens, 0);
  }
  expect_nothing_leaked(engine);
}

TEST_F(FirstToken, HasItsLogprobAndItsPenalty) {
  const std::vector<TokenId> prompt = some_tokens(9);
  GenerateOptions options = request(Dyspec{8}, 0.8);
  options.logprobs = true;
  options.sampling.repetition_penalty = 1.4;
  const Generation fresh = engine_.generate(prompt, options);
  const Generation kept = KeptPrompt(engine_, prompt).generate(options);
  ASSERT_EQ(fresh.logprobs.size(), fresh.tokens.size());
  EXPECT_EQ(fresh.logprobs[0].token, fresh.tokens[0]);
  if (on_cuda()) return;
  EXPECT_EQ(fresh.tokens, kept.tokens);
  for (std::size_t i = 0; i < fresh.tokens.size(); ++i) {
    EXPECT_NEAR(fresh.logprobs[i].logprob, kept.logprobs[i].logprob, 1e-4);
  }
}

// The tree of a prompt is still shown from its first position.
TEST_F(FirstToken, IsNotTakenFromJudgedTrees) {
  const std::vector<TokenId> prompt = some_tokens(9);
  const JudgedTree judged = engine_.judge_tree(prompt, request(Dyspec{8}, 0.0));
  EXPECT_EQ(judged.nodes.size(), 9u);
  EXPECT_EQ(judged.nodes[0].token, prompt.back());
  expect_nothing_leaked(engine_);
}

}  // namespace
}  // namespace coppice::testing
