#include "verify/verifier.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <random>
#include <vector>

#include "drafting/child_drawer.h"
#include "kernels/logits.h"
#include "reference/all_trees.h"
#include "reference/enumeration.h"
#include "reference/naive_rejection.h"
#include "verify/rejection-inl.h"

namespace coppice {
namespace {

// The target's distribution by node, as given; counts what is asked for.
class ScriptedTarget final : public TargetSource {
 public:
  explicit ScriptedTarget(std::size_t vocab) : row_(vocab, 0.0f) {}
  std::span<const float> distribution(std::int32_t node) override {
    ++calls;
    std::fill(row_.begin(), row_.end(), 0.0f);
    row_[static_cast<std::size_t>(choice[static_cast<std::size_t>(node)])] = 1.0f;
    return row_;
  }
  TokenId argmax(std::int32_t node) override {
    ++calls;
    return choice[static_cast<std::size_t>(node)];
  }
  std::vector<TokenId> choice;  ///< the one token that the target wants after each node
  int calls = 0;

 private:
  std::vector<float> row_;
};

class FixedTarget final : public TargetSource {
 public:
  explicit FixedTarget(std::vector<float> probs) : probs_(std::move(probs)) {}
  std::span<const float> distribution(std::int32_t) override { return probs_; }
  TokenId argmax(std::int32_t) override {
    return static_cast<TokenId>(std::max_element(probs_.begin(), probs_.end()) - probs_.begin());
  }

 private:
  std::vector<float> probs_;
};

TEST(AcceptanceRules, EveryPatternOnEveryTreeUpToSevenTokens) {
  constexpr std::size_t vocab = 9;  // tokens 1 to 7 are nodes, 8 is in no tree
  NoiseCache noise(vocab);
  const auto rejection = make_rejection_verifier();
  const auto literal = testing::make_naive_rejection_verifier();
  const auto greedy = make_greedy_verifier();
  const auto coupled = make_coupled_verifier(noise);
  DistributionTable draft(8, vocab);
  for (std::int32_t node = 0; node < 8; ++node) {
    const auto row = draft.row(node);
    std::fill(row.begin(), row.end(), 0.125f);
    row[0] = 0.0f;
  }
  ScriptedTarget target(vocab);
  Verdict verdict, expected;
  std::int64_t judged = 0;
  for (std::int32_t nodes = 1; nodes <= 8; ++nodes) {
    testing::for_each_tree(nodes, [&](const TokenTree& tree) {
      for (unsigned pattern = 0; pattern < 1u << (nodes - 1); ++pattern) {
        // The target wants the first child whose bit is set, else a token outside the tree.
        target.choice.assign(static_cast<std::size_t>(nodes), 8);
        for (std::int32_t i = nodes - 1; i > 0; --i) {
          if ((pattern >> (i - 1) & 1) != 0) {
            target.choice[static_cast<std::size_t>(tree.parent[static_cast<std::size_t>(i)])] = i;
          }
        }
        expected.path.clear();
        std::int32_t node = 0;
        while ((expected.bonus = target.choice[static_cast<std::size_t>(node)]) != 8) {
          node = expected.bonus;
          expected.path.push_back(node);
        }
        for (Verifier* rule : {rejection.get(), greedy.get(), coupled.get(), literal.get()}) {
          if (rule == literal.get() && nodes > 6) continue;
          target.calls = 0;
          rule->judge(tree, target, draft, {1, 2, pattern, 4}, verdict);
          ASSERT_EQ(verdict.path, expected.path) << rule->name();
          ASSERT_EQ(verdict.bonus, expected.bonus) << rule->name();
          // Only the nodes on the path are looked at.
          ASSERT_EQ(target.calls, static_cast<int>(expected.path.size()) + 1) << rule->name();
          ++judged;
        }
      }
    });
  }
  std::cout << judged << " verdicts\n";
}

// One node, its children drawn by the drawer: the scalar rule and the literal one agree draw by
// draw, but for near-ties of rounding.
TEST(RejectionVerifier, AgreesWithTheLiteralRule) {
  std::mt19937_64 random(1);
  const auto scalar = make_rejection_verifier();
  const auto literal = testing::make_naive_rejection_verifier();
  int different = 0, judged = 0;
  for (int round = 0; round < 3000; ++round) {
    const std::size_t vocab = 2 + random() % 12;
    NoiseCache noise(static_cast<std::int64_t>(vocab));
    ChildDrawer drawer(static_cast<std::int64_t>(vocab), noise);
    const auto draw_row = [&](double sharpness) {
      std::normal_distribution<double> normal(0.0, sharpness);
      std::vector<float> row(vocab);
      double sum = 0.0;
      for (float& x : row) {
        x = random() % 5 == 0 ? 0.0f : static_cast<float>(std::exp(normal(random)));
      }
      row[random() % vocab] = 1.0f;
      for (float x : row) sum += static_cast<double>(x);
      for (float& x : row) x = static_cast<float>(x / sum);
      return row;
    };
    FixedTarget target(draw_row(1.0 + round % 3));
    const std::vector<float> declared = draw_row(1.0);
    for (std::uint64_t step = 0; step < 10; ++step) {
      const StepKey key{3, static_cast<std::uint64_t>(round), step, 0};
      drawer.begin(key, AcceptanceRule::rejection);
      TokenTree tree;
      tree.reset(0);
      std::copy(declared.begin(), declared.end(), drawer.prepare(0).begin());
      drawer.ready(0);
      const std::int32_t size = static_cast<std::int32_t>(random() % (vocab + 1));
      for (std::int32_t rank = 0; rank < size; ++rank) {
        const auto child = drawer.child(tree, 0, rank);
        if (!child) break;
        tree.add(0, child->token, rank, child->prob, 1.0);
      }
      Verdict a, b;
      scalar->judge(tree, target, drawer.distributions(), key, a);
      literal->judge(tree, target, drawer.distributions(), key, b);
      ++judged;
      different += a.path != b.path || a.bonus != b.bonus ? 1 : 0;
      for (std::int32_t node : a.path) {
        ASSERT_GT(target.distribution(
                      0)[static_cast<std::size_t>(tree.token[static_cast<std::size_t>(node)])],
                  0.0f);
      }
      ASSERT_GT(target.distribution(0)[static_cast<std::size_t>(a.bonus)], 0.0f);
    }
  }
  std::cout << different << " of " << judged << " verdicts differ\n";
  EXPECT_LE(different, 2);
}

// Outcomes of judging the root's children, each with its probability: a child's token, or the
// bonus as vocab + token.
std::map<TokenId, double> law_of_judging(const std::vector<float>& target_probs,
                                         const std::vector<float>& draft_probs,
                                         const TokenTree& tree) {
  testing::Enumeration enumeration;
  const auto vocab = static_cast<TokenId>(target_probs.size());
  RejectionVerifier<testing::EnumeratedDecisions> rule{testing::EnumeratedDecisions(enumeration)};
  FixedTarget target(target_probs);
  DistributionTable draft(1, vocab);
  std::copy(draft_probs.begin(), draft_probs.end(), draft.row(0).begin());
  Verdict verdict;
  std::map<TokenId, double> law;
  enumeration.each([&] {
    rule.judge(tree, target, draft, {}, verdict);
    const TokenId token = verdict.path.empty()
                              ? vocab + verdict.bonus
                              : tree.token[static_cast<std::size_t>(verdict.path[0])];
    law[token] += enumeration.probability();
  });
  return law;
}

// Where nothing but rounding is left of the residual, the target itself is sampled: D exceeds T
// everywhere, here by so much that a rejection is certain enough to be seen.
TEST(RejectionVerifier, WithoutResidualSamplesTheTarget) {
  TokenTree tree;
  tree.reset(0);
  tree.add(0, 0, 0, 0.5f, 1.0);
  auto law = law_of_judging({0.5f, 0.25f, 0.25f}, {4.0f, 2.0f, 2.0f}, tree);
  EXPECT_NEAR(law[0], 0.5, 1e-15);  // the child: T / D of 1/8, by a draft mass of no less than D
  EXPECT_NEAR(law[3], 0.25, 1e-15);
  EXPECT_NEAR(law[4], 0.125, 1e-15);
  EXPECT_NEAR(law[5], 0.125, 1e-15);
}

TEST(RejectionVerifier, EqualDistributionsAcceptTheFirstChild) {
  std::mt19937_64 random(2);
  std::vector<float> probs(1000);
  double sum = 0.0;
  for (float& x : probs) sum += x = static_cast<float>(random() % 100000 + 1);
  for (float& x : probs) x = static_cast<float>(x / sum);
  FixedTarget target(probs);
  DistributionTable draft(1, 1000);
  std::copy(probs.begin(), probs.end(), draft.row(0).begin());
  const auto rule = make_rejection_verifier();
  Verdict verdict;
  for (std::uint64_t step = 0; step < 5000; ++step) {
    TokenTree tree;
    tree.reset(0);
    const auto token = static_cast<TokenId>(random() % 1000);
    tree.add(0, token, 0, probs[static_cast<std::size_t>(token)], 1.0);
    rule->judge(tree, target, draft, {5, 0, step, 0}, verdict);
    ASSERT_EQ(verdict.path, std::vector<std::int32_t>{1});
  }
}

TEST(RejectionVerifier, AFullyDrawnDraftLeavesWhatItLacks) {
  // D = {1/2, 1/2, 0, 0} drawn to the end, T has nothing there: the residual is T.
  TokenTree tree;
  tree.reset(0);
  tree.add(0, 1, 0, 0.5f, 1.0);
  tree.add(0, 0, 1, 0.5f, 0.5);
  auto law = law_of_judging({0.0f, 0.0f, 0.25f, 0.75f}, {0.5f, 0.5f, 0.0f, 0.0f}, tree);
  EXPECT_EQ(law.size(), 2u);
  EXPECT_NEAR(law[4 + 2], 0.25, 1e-15);
  EXPECT_NEAR(law[4 + 3], 0.75, 1e-15);
}

}  // namespace
}  // namespace coppice
