// Trees that grow in step: each is the one that its text would have alone.
#include "drafting/grow.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "drafting/calibration.h"
#include "drafting/expand_rerank.h"
#include "drafting/sequoia.h"
#include "drafting/specinfer.h"
#include "drafting/static_tree.h"
#include "reference/table_draft.h"
#include "reference/wrapped_policy.h"

namespace coppice::grow_test {
namespace {

using testing::TableDraft;
using testing::TokenPath;
using testing::WrappedPolicy;

constexpr std::size_t vocab = 9;

const AcceptanceCalibration& learned() {
  static const AcceptanceCalibration calibration = [] {
    AcceptanceCalibration of;
    for (int i = 0; i < 60; ++i) of.observe(i % 3, 1 + i % 5, 0.016 * i, i % 3 != 0);
    of.update();
    return of;
  }();
  return calibration;
}

// A text with a draft of its own.
struct Text {
  std::string name;
  std::unique_ptr<DraftPolicy> policy;
  GrowthLimits limits;
  AcceptanceRule draw = AcceptanceRule::rejection;
};

std::vector<Text> texts() {
  std::vector<Text> all;
  all.push_back({"dyspec", make_dyspec_policy(), {20}});
  all.push_back({"dyspec, shallow", make_dyspec_policy(), {9, 2}});
  all.push_back({"threshold", make_dyspec_policy(), {64, 30, 0.02}});
  all.push_back({"calibrated", make_dyspec_policy({&learned()}), {12}});
  all.push_back({"looking ahead",
                 make_dyspec_policy({&learned(), nullptr, true}),
                 {12},
                 AcceptanceRule::coupled});
  all.push_back({"no room", make_dyspec_policy(), {0}});
  all.push_back({"chain", make_chain_policy(), {7}});
  all.push_back(
      {"static", make_static_policy(TreeShape(std::vector<RankPath>{{0}, {1}, {0, 0}})), {}});
  all.push_back(
      {"sequoia", make_sequoia_policy(plan_sequoia(std::vector<double>{0.6, 0.2}, {9, 4, 3})), {}});
  all.push_back({"specinfer", make_specinfer_policy({2, 1, 2}), {}});
  all.push_back({"expand-rerank",
                 make_expand_rerank_policy({3, 4}, AcceptanceRule::greedy),
                 {8},
                 AcceptanceRule::greedy});
  return all;
}

std::unique_ptr<TableDraft> draft_of(const Text& text, std::uint64_t seed) {
  const TableDraft::Rows rows = [=](const TokenPath& path) {
    return testing::random_row(seed, vocab, path);
  };
  return std::make_unique<TableDraft>(rows, vocab, StepKey{seed, 1, 2, 3}, text.draw);
}

// One pass over several texts.
class Together final : public DraftPasses {
 public:
  explicit Together(std::vector<std::unique_ptr<TableDraft>>& drafts) : drafts_(drafts) {}
  void evaluate(std::span<const GrowingText> texts) override {
    ++passes;
    ASSERT_EQ(texts.size(), drafts_.size());
    std::size_t rows = 0;
    for (std::size_t i = 0; i < texts.size(); ++i) {
      const std::span<const std::int32_t> frontier = texts[i].frontier();
      rows += frontier.size();
      if (!frontier.empty()) drafts_[i]->evaluate(texts[i].policy.growth().candidates, frontier);
    }
    EXPECT_GT(rows, 0u);
  }
  std::int32_t passes = 0;

 private:
  std::vector<std::unique_ptr<TableDraft>>& drafts_;
};

void expect_equal(const TokenTree& a, const TokenTree& b, const std::string& name) {
  EXPECT_EQ(a.token, b.token) << name;
  EXPECT_EQ(a.parent, b.parent) << name;
  EXPECT_EQ(a.rank, b.rank) << name;
  EXPECT_EQ(a.draft_prob, b.draft_prob) << name;
  EXPECT_EQ(a.belief, b.belief) << name;
  EXPECT_EQ(a.uniform, b.uniform) << name;
  EXPECT_EQ(a.value, b.value) << name;
  EXPECT_EQ(a.candidate, b.candidate) << name;
}

// Texts that share passes.
struct Batch {
  explicit Batch(std::vector<Text>& of, std::uint64_t seed) : trees(of.size()) {
    for (std::size_t i = 0; i < of.size(); ++i) {
      drafts.push_back(draft_of(of[i], seed + i));
      trees[i].reset(static_cast<TokenId>(i % vocab));
      growing.push_back({*of[i].policy, *drafts[i], of[i].limits, trees[i], nullptr});
    }
  }
  std::vector<std::unique_ptr<TableDraft>> drafts;
  std::vector<TokenTree> trees;
  std::vector<GrowingText> growing;
};

TEST(GrowTrees, InStepAreWhatTheyAreAlone) {
  std::vector<Text> all = texts(), others = texts();
  std::int32_t nodes = 0;
  for (std::uint64_t seed = 0; seed < 200; ++seed) {
    Batch batch(all, seed);
    Together passes(batch.drafts);
    grow_trees(batch.growing, passes);
    std::int32_t most = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      ASSERT_EQ(batch.growing[i].failure, nullptr) << all[i].name;
      const auto draft = draft_of(others[i], seed + i);
      TokenTree alone;
      alone.reset(static_cast<TokenId>(i % vocab));
      grow_tree(*others[i].policy, *draft, others[i].limits, alone);
      alone.validate(static_cast<std::int32_t>(vocab));
      expect_equal(batch.trees[i], alone, all[i].name);
      EXPECT_EQ(batch.drafts[i]->evaluated, draft->evaluated) << all[i].name;
      EXPECT_FALSE(batch.drafts[i]->broken) << all[i].name;
      most = std::max(most, draft->passes);
      nodes += alone.size();
    }
    EXPECT_EQ(passes.passes, most);
  }
  EXPECT_GT(nodes, 10000);
}

TEST(GrowTrees, NothingWantedIsNoPass) {
  std::vector<Text> all;
  for (const GrowthLimits limits : {GrowthLimits{0}, GrowthLimits{5, 0}, GrowthLimits{5, 5, 1.5}}) {
    for (Text& text : texts())
      all.push_back({text.name, std::move(text.policy), limits, text.draw});
  }
  Batch batch(all, 1);
  Together passes(batch.drafts);
  grow_trees(batch.growing, passes);
  EXPECT_EQ(passes.passes, 0);
  for (const TokenTree& tree : batch.trees) EXPECT_EQ(tree.size(), 0);
  grow_trees({}, passes);
  EXPECT_EQ(passes.passes, 0);
}

// Fails at one of its calls.
class Failing final : public WrappedPolicy {
 public:
  explicit Failing(int call) : WrappedPolicy(make_dyspec_policy()), call_(call) {}
  void begin(const GrowthLimits& limits, TokenId root) override {
    count();
    WrappedPolicy::begin(limits, root);
  }
  void take(DraftSource& source) override {
    count();
    WrappedPolicy::take(source);
  }
  void finish(TokenTree& tree) override {
    calls_ = call_ - 1;
    count();
    WrappedPolicy::finish(tree);
  }

 private:
  void count() {
    if (++calls_ == call_) throw std::runtime_error("mine");
  }
  const int call_;
  int calls_ = 0;
};

TEST(GrowTrees, AFailureSparesTheOthers) {
  for (const int call : {1, 2, 3, 100}) {
    std::vector<Text> all = texts(), others = texts();
    const std::size_t at = 3;
    all[at].policy = std::make_unique<Failing>(call);
    all[at].limits = {20};
    Batch batch(all, 5), without(others, 5);
    Together passes(batch.drafts), passes_without(without.drafts);
    grow_trees(batch.growing, passes);
    grow_trees(without.growing, passes_without);
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (i == at) continue;
      EXPECT_EQ(batch.growing[i].failure, nullptr) << all[i].name;
      expect_equal(batch.trees[i], without.trees[i], all[i].name);
    }
    EXPECT_THROW(std::rethrow_exception(batch.growing[at].failure), std::runtime_error);
    EXPECT_EQ(batch.trees[at].size(), 0);
    if (call <= 3) {
      EXPECT_EQ(batch.drafts[at]->passes, call - 1);
    }

    const auto draft = draft_of(all[at], 5);
    Failing alone(call);
    TokenTree tree;
    tree.reset(1);
    EXPECT_THROW(grow_tree(alone, *draft, {20}, tree), std::runtime_error);
  }
}

// What the draft throws is of all texts.
TEST(GrowTrees, AFailedPassEndsAll) {
  class NoPasses final : public DraftPasses {
   public:
    void evaluate(std::span<const GrowingText>) override { throw std::runtime_error("no slots"); }
  } passes;
  std::vector<Text> all = texts();
  Batch batch(all, 1);
  EXPECT_THROW(grow_trees(batch.growing, passes), std::runtime_error);
  // The next step is none the worse for it.
  Batch next(all, 1), same(all, 1);
  Together together(next.drafts), again(same.drafts);
  grow_trees(next.growing, together);
  grow_trees(same.growing, again);
  for (std::size_t i = 0; i < all.size(); ++i) {
    expect_equal(next.trees[i], same.trees[i], all[i].name);
  }
}

}  // namespace
}  // namespace coppice::grow_test
