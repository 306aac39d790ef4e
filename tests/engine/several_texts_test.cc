// Steps of several texts that share the draft's and the target's passes, against the same steps of
// each text alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/error.h"
#include "drafting/draft_runner.h"
#include "drafting/policy.h"
#include "engine/step_machine.h"
#include "reference/backend.h"
#include "reference/naive_device.h"
#include "reference/pass_faults.h"
#include "reference/random_tokens.h"
#include "verify/target_runner.h"
#include "verify/tree_judge.h"

namespace coppice {
namespace {

using testing::Backend;
using testing::faulty_passes;
using testing::PassFault;
using testing::random_tokens;
using namespace testing::steps;

class SeveralTexts : public ::testing::TestWithParam<Backend> {
 protected:
  void SetUp() override {
    if (const auto why = testing::lacking(GetParam()); !why.empty()) GTEST_SKIP() << why;
    machine_ = std::make_unique<Machine>(GetParam());
  }
  using States = std::vector<std::unique_ptr<SequenceState>>;
  States new_texts(const std::vector<TextOfStep>& requests) {
    States states;
    for (const TextOfStep& request : requests) {
      states.push_back(std::make_unique<SequenceState>(machine_->new_text(request)));
    }
    return states;
  }
  static std::vector<SequenceState*> pointers(const States& states) {
    std::vector<SequenceState*> all;
    for (const auto& state : states) all.push_back(state.get());
    return all;
  }
  /// Whether what a row sums up does not depend on the rows beside it.
  bool bit_for_bit() const { return GetParam().name != std::string("cuda"); }
  /// How many of `steps` steps in which the texts share passes bring another result than alone, and
  /// how far logits are apart at most. Both begin each step with the text as it is alone.
  struct Difference {
    int steps = 0;
    double logits = 0.0;
  };
  Difference difference(const std::vector<TextOfStep>& requests,
                        const std::vector<TextOfStep>& asked_together, int steps,
                        const std::function<void(States&)>& plant = {}) {
    const States alone = new_texts(requests);
    States together = new_texts(requests);
    Difference found;
    for (int step = 0; step < steps; ++step) {
      if (plant) plant(together);
      machine_->target->change_passes(faulty_passes(fault_));
      const auto shared = machine_->step(asked_together, pointers(together));
      machine_->target->change_passes({});
      if (plant) plant(together);  // takes it back
      for (std::size_t t = 0; t < requests.size(); ++t) {
        const auto own = machine_->step({requests[t]}, {alone[t].get()}).front();
        const StepResult& of_text = shared[t];
        bool equal = own.tree.token == of_text.tree.token &&
                     own.tree.parent == of_text.tree.parent &&
                     own.tree.draft_prob == of_text.tree.draft_prob &&
                     own.verdict.path == of_text.verdict.path &&
                     own.verdict.bonus == of_text.verdict.bonus && own.logits == of_text.logits;
        found.steps += equal ? 0 : 1;
        for (std::size_t n = 0; n < std::min(own.logits.size(), of_text.logits.size()); ++n) {
          if (own.tree.token[n] != of_text.tree.token[n]) break;  // paths part here
          for (std::size_t i = 0; i < own.logits[n].size(); ++i) {
            found.logits = std::max(
                found.logits, std::abs(double{own.logits[n][i]} - double{of_text.logits[n][i]}));
          }
        }
        if (alone[t]->tokens == together[t]->tokens) continue;
        together[t] = std::make_unique<SequenceState>(machine_->new_text(requests[t]));
        for (std::size_t i = requests[t].prompt.size(); i < alone[t]->tokens.size(); ++i) {
          together[t]->append(alone[t]->tokens[i]);
        }
        together[t]->steps = alone[t]->steps;
      }
    }
    return found;
  }
  /// Bound on the logits' difference where sums are in another order.
  static constexpr double rounding = 0.15;

  std::unique_ptr<Machine> machine_;
  PassFault fault_ = PassFault::none;
};

INSTANTIATE_TEST_SUITE_P(Devices, SeveralTexts,
                         ::testing::Values(Backend{"naive", testing::make_naive_device},
                                           Backend{"f32", [] { return testing::cpu(DType::f32); }},
                                           testing::cuda),
                         [](const auto& backend) { return backend.param.name; });

TEST_P(SeveralTexts, AreWhatEachIsAlone) {
  std::mt19937 random(3);
  for (const std::size_t count : {1, 2, 5, 12}) {
    const std::vector<TextOfStep> requests = mixed_texts(count, random);
    const Difference found = difference(requests, requests, 6);
    if (bit_for_bit()) {
      EXPECT_EQ(found.steps, 0) << count << " texts";
    }
    EXPECT_LE(found.logits, bit_for_bit() ? 0.0 : rounding) << count << " texts";
    EXPECT_TRUE(machine_->all_free());
  }
}

// What the test above must notice: whatever a text takes from its neighbour.
TEST_P(SeveralTexts, FaultsAreNoticed) {
  std::mt19937 random(4);
  const std::vector<TextOfStep> requests = mixed_texts(6, random);
  const double right = difference(requests, requests, 3).logits;
  for (const PassFault fault : {PassFault::seen_by_neighbour, PassFault::slots_of_neighbour,
                                PassFault::position_of_neighbour, PassFault::logits_of_neighbour}) {
    // A device's verdict would then name nodes that its tree does not have.
    if (fault == PassFault::logits_of_neighbour && !bit_for_bit()) continue;
    fault_ = fault;
    const Difference found = difference(requests, requests, 3);
    EXPECT_GT(found.steps, 5) << static_cast<int>(fault);
    EXPECT_GT(found.logits, 3 * right) << static_cast<int>(fault);
  }
  fault_ = PassFault::none;
  if (!bit_for_bit()) return;  // sampling's are in tests/cuda/sampler_texts_test.cc
  // Text 2 is drawn and judged by shared noise, text 3 by its own.
  for (const std::size_t t : {std::size_t{2}, std::size_t{3}}) {
    std::vector<TextOfStep> other = requests;
    other[t].target.temperature = requests[t - 1].target.temperature + 0.5;
    EXPECT_GT(difference(requests, other, 12).steps, 0) << "temperature of judging, text " << t;
    other = requests;
    other[t].draft.temperature = 2.0;
    EXPECT_GT(difference(requests, other, 3).steps, 0) << "temperature of drawing, text " << t;
    other = requests;
    other[t].key = requests[t - 1].key;
    EXPECT_GT(difference(requests, other, 3).steps, 0) << "noise, text " << t;
  }
  const auto swap_counts = [](States& states) { std::swap(states[0]->counts, states[2]->counts); };
  EXPECT_GT(difference(requests, requests, 12, swap_counts).steps, 0) << "counts";
}

TEST_P(SeveralTexts, APartOfAPromptRidesAlong) {
  std::mt19937 random(5);
  std::vector<TextOfStep> requests = mixed_texts(2, random);
  requests[1].prompt = random_tokens(90, vocab, 8);
  States states = new_texts(requests), whole = new_texts(requests);
  // 30 tokens beside each of two steps of the other text, the rest as prefill rows.
  for (int chunk = 0; chunk < 2; ++chunk) {
    TokenTree root;
    root.reset(states[0]->tokens.back());
    const std::vector<TargetRunner::Text> texts = {{states[0].get(), &root, requests[0].target},
                                                   {states[1].get(), nullptr, {}, 30}};
    const TargetRunner::Pass pass = machine_->target->pass(texts);
    ASSERT_TRUE(pass);
    pass->wait();
    pass->text(0).commit({});
    pass->text(1).commit({});
    states[0]->append(3);
    EXPECT_EQ(states[1]->target_slots.size(), 30 * (chunk + 1));
  }
  std::vector<std::vector<float>> logits;
  for (SequenceState* state : {states[1].get(), whole[1].get()}) {
    TokenTree root;
    root.reset(state->tokens.back());
    EXPECT_EQ(TargetRunner::prefill_rows(*state), state == states[1].get() ? 29 : 89);
    const TargetRunner::Pass pass = machine_->target->pass(*state, root, requests[1].target);
    ASSERT_TRUE(pass);
    pass->wait();
    const auto row = pass->text().logits(0);
    logits.emplace_back(row.begin(), row.end());
  }
  for (std::size_t i = 0; i < logits[0].size(); ++i) {
    // Tokens of former passes and of this one are summed apart.
    EXPECT_NEAR(logits[0][i], logits[1][i], bit_for_bit() ? 1e-5 : rounding);
  }
}

TEST_P(SeveralTexts, WithoutSlotsNothingChanges) {
  std::mt19937 random(6);
  const std::vector<TextOfStep> requests = mixed_texts(3, random);
  States states = new_texts(requests);
  KvSlots others(&machine_->target_pool());
  const std::int32_t all = machine_->target_pool().free_slots();
  ASSERT_TRUE(others.take(all - states[0]->length() - states[1]->length()));
  std::vector<TokenTree> roots(3);
  std::vector<TargetRunner::Text> texts;
  for (std::size_t t = 0; t < 3; ++t) {
    roots[t].reset(states[t]->tokens.back());
    texts.push_back({states[t].get(), &roots[t], requests[t].target});
  }
  EXPECT_FALSE(machine_->target->pass(texts)) << "no slot for the third";
  EXPECT_EQ(machine_->target_pool().free_slots(), states[0]->length() + states[1]->length());
  texts.pop_back();
  EXPECT_TRUE(machine_->target->pass(texts));
}

// A pass that holds too many rows is divided; one that fails leaves nothing behind.
TEST_P(SeveralTexts, DraftPassesHoldWhatFits) {
  std::mt19937 random(7);
  std::vector<TextOfStep> requests = mixed_texts(8, random);
  for (TextOfStep& request : requests) request.prompt = random_tokens(60, vocab, random());
  States states = new_texts(requests);
  std::vector<DraftRunner::Step> steps;
  std::vector<TokenTree> trees(requests.size());
  std::vector<DraftRunner::StepNodes> frontiers;
  const std::vector<std::int32_t> root = {0};
  for (std::size_t t = 0; t < requests.size(); ++t) {
    steps.push_back(machine_->draft->begin(*states[t], requests[t].key,
                                           {requests[t].draft, AcceptanceRule::greedy}));
    trees[t].reset(states[t]->tokens.back());
    frontiers.push_back({steps[t].get(), &trees[t], root});
  }
  const std::int64_t before = machine_->draft->passes();
  machine_->draft->evaluate(frontiers);
  EXPECT_EQ(machine_->draft->passes() - before, 2) << "480 rows, 256 at a time";
  for (std::size_t t = 0; t < requests.size(); ++t) {
    EXPECT_EQ(steps[t]->passes(), 1);
    EXPECT_EQ(states[t]->draft_slots.size(), 60);
    EXPECT_TRUE(steps[t]->child(trees[t], 0, 0));
  }
}

// Through the driver of the rounds (drafting/grow.h), which asks for passes of all texts that want
// some.
TEST_P(SeveralTexts, PoliciesGrowInTheSamePasses) {
  std::mt19937 random(8);
  const std::vector<TextOfStep> requests = mixed_texts(7, random);
  const auto policy_of = [](std::size_t t) {
    return t % 3 == 2 ? make_chain_policy() : make_dyspec_policy();
  };
  const auto limits_of = [](std::size_t t) {
    return GrowthLimits{3 + 4 * static_cast<std::int32_t>(t), 5};
  };
  const States alone = new_texts(requests), together = new_texts(requests);
  std::vector<TokenTree> trees(requests.size());
  std::vector<std::unique_ptr<DraftPolicy>> policies;
  std::vector<DraftRunner::Step> steps;
  std::vector<GrowingText> growing;
  for (std::size_t t = 0; t < requests.size(); ++t) {
    policies.push_back(policy_of(t));
    steps.push_back(machine_->draft->begin(*together[t], requests[t].key,
                                           {requests[t].draft, requests[t].rule}));
    trees[t].reset(together[t]->tokens.back());
    growing.push_back({*policies[t], *steps[t], limits_of(t), trees[t], nullptr, steps[t].get()});
  }
  const std::int64_t before = machine_->draft->passes();
  grow_trees(growing, *machine_->draft);
  EXPECT_EQ(machine_->draft->passes() - before, 5) << "as many as the deepest tree takes";
  for (std::size_t t = 0; t < requests.size(); ++t) {
    ASSERT_FALSE(growing[t].failure);
    if (!bit_for_bit()) continue;  // rounding may decide which of two nodes is drawn
    const auto policy = policy_of(t);
    const DraftRunner::Step step =
        machine_->draft->begin(*alone[t], requests[t].key, {requests[t].draft, requests[t].rule});
    TokenTree tree;
    tree.reset(alone[t]->tokens.back());
    grow_tree(*policy, *step, limits_of(t), tree);
    EXPECT_EQ(trees[t].token, tree.token) << t;
    EXPECT_EQ(trees[t].parent, tree.parent) << t;
    EXPECT_EQ(trees[t].draft_prob, tree.draft_prob) << t;
    EXPECT_EQ(steps[t]->passes(), step->passes()) << t;
  }
}

// What a pass took for texts' own tokens goes back where it cannot be run.
TEST_P(SeveralTexts, DraftsWithoutSlotsChangeNothing) {
  std::mt19937 random(9);
  const std::vector<TextOfStep> requests = mixed_texts(3, random);
  const States states = new_texts(requests);
  KvSlots others(&machine_->draft_pool());
  const std::int32_t left = states[0]->length() + states[1]->length();
  ASSERT_TRUE(others.take(machine_->draft_pool().free_slots() - left));
  const std::vector<std::int32_t> root = {0};
  std::vector<TokenTree> trees(3);
  std::vector<DraftRunner::Step> steps;
  std::vector<DraftRunner::StepNodes> frontiers;
  for (std::size_t t = 0; t < 3; ++t) {
    steps.push_back(
        machine_->draft->begin(*states[t], requests[t].key, {requests[t].draft, requests[t].rule}));
    trees[t].reset(states[t]->tokens.back());
    frontiers.push_back({steps[t].get(), &trees[t], root});
  }
  EXPECT_THROW(machine_->draft->evaluate(frontiers), Error) << "no slot for the third";
  EXPECT_EQ(machine_->draft_pool().free_slots(), left);
  EXPECT_EQ(states[0]->draft_slots.size(), 0);
  steps.clear();
  steps.push_back(
      machine_->draft->begin(*states[0], requests[0].key, {requests[0].draft, requests[0].rule}));
  steps[0]->evaluate(trees[0], root);
  EXPECT_TRUE(steps[0]->child(trees[0], 0, 0));
}

}  // namespace
}  // namespace coppice
