// Steps of texts that share KV of both models, against the same steps of each text alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <random>
#include <vector>

#include "engine/step_machine.h"
#include "reference/backend.h"
#include "reference/naive_device.h"
#include "reference/pass_faults.h"
#include "reference/random_tokens.h"

namespace coppice {
namespace {

using testing::Backend;
using testing::faulty_passes;
using testing::PassFault;
using testing::random_tokens;
using namespace testing::steps;

class SharedTexts : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (const auto why = testing::lacking(GetParam()); !why.empty()) GTEST_SKIP() << why;
    machine_ = std::make_unique<Machine>(GetParam());
  }
  bool on_host() const { return GetParam().name != std::string("cuda"); }
  /// Bound on the difference of logits: their sums are in another order.
  double rounding() const { return on_host() ? 1e-4 : 0.15; }

  // Two families of texts with 70 tokens in common, each with as many again, and some of their own.
  static std::vector<TextOfStep> family(std::size_t count, std::uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<TextOfStep> requests = mixed_texts(count, random);
    const std::vector<TokenId> all = random_tokens(70, vocab, 1);
    for (std::size_t t = 0; t < count; ++t) {
      std::vector<TokenId> prompt = all, own = requests[t].prompt;
      if (t % 5 != 4) {
        const std::vector<TokenId> half = random_tokens(70, vocab, 2 + t % 2);
        prompt.insert(prompt.end(), half.begin(), half.end());
      }
      prompt.insert(prompt.end(), own.begin(), own.end());
      if (t % 4 == 3) prompt = requests[t - 2].prompt;  // a twin's prompt
      requests[t].prompt = prompt;
    }
    return requests;
  }

  /// How far logits of texts in shared passes are from what each has alone.
  double difference(const std::vector<TextOfStep>& requests, int steps,
                    PassFault fault = PassFault::none) {
    std::vector<std::unique_ptr<SequenceState>> alone, together;
    std::vector<SequenceState*> pointers;
    for (const TextOfStep& request : requests) {
      alone.push_back(std::make_unique<SequenceState>(machine_->new_text(request)));
      DraftPrompt missing{alone.back().get(), request.draft};
      EXPECT_TRUE(machine_->target->prefill(*alone.back()));
      EXPECT_TRUE(machine_->draft->prefill(missing));
      together.push_back(std::make_unique<SequenceState>(machine_->new_shared_text(request)));
      pointers.push_back(together.back().get());
    }
    double most = 0.0;
    for (int step = 0; step < steps; ++step) {
      machine_->target->change_passes(faulty_passes(fault));
      const auto shared = machine_->step(requests, pointers);
      machine_->target->change_passes({});
      for (std::size_t t = 0; t < requests.size(); ++t) {
        const StepResult own = machine_->step({requests[t]}, {alone[t].get()}).front();
        for (std::size_t n = 0; n < std::min(own.logits.size(), shared[t].logits.size()); ++n) {
          if (own.tree.token[n] != shared[t].tree.token[n]) break;  // paths part here
          for (std::size_t i = 0; i < own.logits[n].size(); ++i) {
            most =
                std::max(most, std::abs(double{own.logits[n][i]} - double{shared[t].logits[n][i]}));
          }
        }
        if (fault == PassFault::none && on_host()) {
          EXPECT_EQ(alone[t]->tokens, together[t]->tokens) << "text " << t << ", step " << step;
        }
        if (alone[t]->tokens == together[t]->tokens) continue;
        return most;  // the texts differ from here on
      }
    }
    return most;
  }

  std::unique_ptr<Machine> machine_;
};

INSTANTIATE_TEST_SUITE_P(Devices, SharedTexts,
                         ::testing::Values(Backend{"naive", testing::make_naive_device},
                                           Backend{"f32", [] { return testing::cpu(DType::f32); }},
                                           testing::cuda),
                         [](const auto& backend) { return backend.param.name; });

TEST_P(SharedTexts, AreWhatEachIsAlone) {
  for (const std::size_t count : {1, 2, 5, 12}) {
    EXPECT_LE(difference(family(count, 3), 5), rounding()) << count << " texts";
    machine_->cache->validate();
  }
  machine_->cache->evict({5000, 5000});
  EXPECT_TRUE(machine_->all_free());
}

TEST_P(SharedTexts, FaultsAreNoticed) {
  for (const PassFault fault : {PassFault::shared_by_neighbour, PassFault::slots_of_neighbour,
                                PassFault::position_of_neighbour}) {
    EXPECT_GT(difference(family(8, 4), 3, fault), 3 * rounding()) << static_cast<int>(fault);
  }
}

// Attention reads what texts share once for all of them.
TEST_P(SharedTexts, ReadOnceWhatTheyShare) {
  const std::vector<TokenId> all = random_tokens(100, vocab, 1);
  std::vector<TextOfStep> requests(4);
  for (TextOfStep& request : requests) {
    request.prompt = all;
    request.prompt.push_back(static_cast<TokenId>(&request - requests.data()));
  }
  std::vector<std::unique_ptr<SequenceState>> texts;
  std::vector<SequenceState*> pointers;
  for (const TextOfStep& request : requests) {
    texts.push_back(std::make_unique<SequenceState>(machine_->new_shared_text(request)));
    pointers.push_back(texts.back().get());
  }
  EXPECT_EQ(machine_->cache->counts().shared.target, 100);
  const TargetRunner::TokensRead before = machine_->target->tokens_read();
  machine_->step(requests, pointers);
  const TargetRunner::TokensRead after = machine_->target->tokens_read();
  EXPECT_EQ(after.by_text - before.by_text, 400);
  EXPECT_EQ(after.by_tree - before.by_tree, 100);
}

// One of the prompts that the draft has not seen is computed, and the others find it done.
TEST_P(SharedTexts, TheDraftComputesWhatTheyShareOnce) {
  const std::vector<TokenId> all = random_tokens(80, vocab, 1);
  std::vector<std::unique_ptr<SequenceState>> texts;
  std::vector<DraftPrompt> prompts;
  for (int i = 0; i < 3; ++i) {
    texts.push_back(std::make_unique<SequenceState>(vocab, *machine_->cache));
    for (const TokenId token : all) texts.back()->append(token);
    texts.back()->find_shared();
    ASSERT_TRUE(machine_->target->prefill(*texts.back()));
    texts.back()->share(texts.back()->target_kv());
    prompts.push_back({texts.back().get(), {}});
  }
  EXPECT_EQ(texts[2]->target_kv(), 79);
  ASSERT_TRUE(machine_->draft->prefill(prompts));
  EXPECT_EQ(prompts[0].rows, 79);
  EXPECT_EQ(prompts[1].rows, 0);
  for (const DraftPrompt& prompt : prompts) EXPECT_TRUE(prompt.done());
  EXPECT_FALSE(machine_->draft->prefill(prompts)) << "nothing is missing";
  EXPECT_EQ(machine_->cache->counts().shared.draft, 79);
}

// What the draft lacks of shared tokens it goes without, where a step has begun.
TEST_P(SharedTexts, AStepWithoutTheDraftsPrefillIsRight) {
  std::vector<TextOfStep> requests = family(3, 5);
  for (TextOfStep& request : requests) request.depth = 2;
  std::vector<std::unique_ptr<SequenceState>> texts;
  std::vector<SequenceState*> pointers;
  for (const TextOfStep& request : requests) {
    texts.push_back(std::make_unique<SequenceState>(vocab, *machine_->cache));
    for (const TokenId token : request.prompt) texts.back()->append(token);
    texts.back()->find_shared();
    ASSERT_TRUE(machine_->target->prefill(*texts.back()));
    texts.back()->share(texts.back()->target_kv());
    pointers.push_back(texts.back().get());
  }
  for (int step = 0; step < 3; ++step) machine_->step(requests, pointers);
  EXPECT_EQ(machine_->cache->counts().shared.draft, 0);
  for (const auto& text : texts) {
    EXPECT_GE(text->draft_from, 0);
    EXPECT_LT(text->draft_from, text->base.length());
    EXPECT_EQ(text->draft_kv(), text->draft_from + text->draft_slots.size());
    text->release();
  }
  machine_->cache->validate();
  machine_->cache->evict({5000, 5000});
  EXPECT_TRUE(machine_->all_free());
}

// It computes a short prompt for the text alone, and guesses as if nothing had been shared;
// of a long one the end.
TEST_P(SharedTexts, AStepCatchesUpWithSharedTokens) {
  for (const std::size_t length : {40, 100}) {
    const std::vector<TokenId> all = random_tokens(length, vocab, 1);
    TextOfStep request;
    request.prompt = all;
    request.depth = 2;
    SequenceState alone = machine_->new_text(request);
    ASSERT_TRUE(machine_->target->prefill(alone));
    SequenceState first(vocab, *machine_->cache), text(vocab, *machine_->cache);
    for (SequenceState* const state : {&first, &text}) {
      for (const TokenId token : all) state->append(token);
      state->find_shared();
      ASSERT_TRUE(machine_->target->prefill(*state));
      state->share(state->target_kv());
    }
    ASSERT_EQ(text.base.length(), static_cast<std::int32_t>(length) - 1);
    const StepResult own = machine_->step({request}, {&alone}).front();
    const StepResult shared = machine_->step({request}, {&text}).front();
    EXPECT_EQ(text.draft_from, length == 40 ? 0 : 68);
    if (on_host()) {
      EXPECT_EQ(own.tree.token, shared.tree.token);
    }
    // Then somebody computes it for all, and the text's own goes.
    DraftPrompt prompt{&first, {}};
    ASSERT_TRUE(machine_->draft->prefill(prompt));
    text.yield_draft();
    EXPECT_EQ(text.draft_from, -1);
    EXPECT_EQ(text.base.draft_length(), text.base.length());
    EXPECT_EQ(text.draft_kv(), text.base.length() + text.draft_slots.size());
    machine_->step({request}, {&text});
    text.release();
    first.release();
    machine_->cache->validate();
    machine_->cache->evict({5000, 5000});
  }
  EXPECT_TRUE(machine_->all_free());
}

}  // namespace
}  // namespace coppice
