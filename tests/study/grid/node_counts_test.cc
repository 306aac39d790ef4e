#include "study/grid/node_counts.h"

#include <gtest/gtest.h>

#include <array>

#include "base/error.h"
#include "coppice.h"
#include "engine/engine_impl.h"
#include "engine/pair.h"
#include "study/files/members.h"

namespace coppice::study {
namespace {

TEST(NodeCounts, Bins) {
  EXPECT_EQ(probability_bin(0.0), 0u);
  EXPECT_EQ(probability_bin(0.049), 0u);
  EXPECT_EQ(probability_bin(0.05), 1u);
  EXPECT_EQ(probability_bin(1.0), probability_bins - 1);
  EXPECT_EQ(probability_bin(0.93, number_bins), 7u);
}

//  root ── a 0.5 (rejected), b 0.2 (accepted), c 0.1 (never looked at)
//  b ── d 0.8 (rejected), e 0.15 (rejected)
//  a ── f 0.9 (its parent was rejected)
TEST(NodeCounts, CountsWhatTheJudgeLookedAt) {
  TokenTree tree;
  tree.reset(0);
  const std::int32_t a = tree.add(0, 1, 0, 0.5f, 1.0);
  const std::int32_t b = tree.add(0, 2, 1, 0.2f, 0.5);
  tree.add(0, 3, 2, 0.1f, 0.3);
  tree.add(b, 4, 0, 0.8f, 0.2);
  tree.add(a, 6, 0, 0.9f, 0.5);
  tree.add(b, 5, 1, 0.15f, 0.04);
  NodeCounts counts;
  const std::array<std::int32_t, 1> path = {b};
  counts.add(tree, path);
  const Examined total = counts.total();
  EXPECT_EQ(total.examined, 4);  // a, b, d, e
  EXPECT_EQ(total.accepted, 1);
  EXPECT_NEAR(total.estimate, 0.5 + 0.2 + 0.8 + 0.15, 1e-6);
  EXPECT_EQ(counts.by_draft_prob[4].accepted + counts.by_draft_prob[3].accepted, 1);  // 0.2f
  EXPECT_EQ(counts.by_position.size(), 4u);
  EXPECT_EQ(counts.by_position.at({1, 1}).accepted, 1);
  EXPECT_EQ(counts.by_position.at({2, 0}).accepted, 0);
  EXPECT_FALSE(counts.by_position.contains({1, 2}));
}

// What was looked up has no draft probability, and takes no rank from the draft's children.
TEST(NodeCounts, CountsWhatWasLookedUpApart) {
  TokenTree tree;
  tree.reset(0);
  tree.add_certain(0, 1, 0, 0.6, 0.6);
  const std::int32_t b = tree.add(0, 2, 1, 0.5f, 0.3, -1.0f, 0.12f);
  tree.add_certain(b, 3, 0, 0.2, 0.4);
  const std::array<std::int32_t, 2> path = {b, b + 1};
  const AcceptanceCalibration calibration;
  NodeCounts counts;
  counts.add(tree, path, false, &calibration);
  EXPECT_EQ(counts.looked_up.examined, 2);
  EXPECT_EQ(counts.looked_up.accepted, 1);
  EXPECT_NEAR(counts.looked_up.estimate, 1.0, 1e-6);
  EXPECT_EQ(counts.by_draft_prob.size(), 1u);
  EXPECT_EQ(counts.total().examined, 3);
  EXPECT_EQ(counts.total().accepted, 2);
  ASSERT_EQ(counts.by_chance.size(), 1u);
  EXPECT_NEAR(counts.by_chance.begin()->second.estimate,
              calibration.child(0, 0.5, static_cast<double>(0.12f)), 1e-9)
      << "the draft's first child";
}

// Behind an end token the judge went on: nothing there counts.
TEST(NodeCounts, NothingBehindAnEndTokenCounts) {
  TokenTree tree;
  tree.reset(0);
  const std::int32_t end = tree.add(0, 2, 0, 0.5f, 1.0, -1.0f, 0.3f);
  tree.add(end, 4, 0, 0.8f, 0.2);
  const std::array<std::int32_t, 1> path = {end};
  NodeCounts goes_on, ends;
  goes_on.add(tree, path);
  ends.add(tree, path, true);
  EXPECT_EQ(goes_on.total().examined, 2);
  EXPECT_EQ(ends.total().examined, 1);
  EXPECT_EQ(ends.total().accepted, 1);
  EXPECT_FALSE(ends.by_position.contains({2, 0}));
  const std::size_t bin = probability_bin(static_cast<double>(0.3f), number_bins);
  EXPECT_EQ(goes_on.by_number.at(bin).tokens, 2) << "the bonus token";
  EXPECT_EQ(ends.by_number.at(bin).tokens, 1) << "the end token alone";
}

// Chances are those of the shares that beliefs leave, by the numbers where these are known; a step
// counts with its first child's number.
TEST(NodeCounts, CountsWhatGrowthReckonedWith) {
  TokenTree tree;
  tree.reset(0);
  tree.add(0, 1, 0, 0.5f, 1.0, -1.0f, 0.93f);
  const std::int32_t b = tree.add(0, 2, 1, 0.2f, 0.5, -1.0f, 0.12f);
  const std::array<std::int32_t, 1> path = {b};
  const AcceptanceCalibration calibration;
  NodeCounts counts, plain;
  counts.add(tree, path, false, &calibration);
  plain.add(tree, path);
  const double first = calibration.child(0, 0.5, static_cast<double>(0.93f)),
               second = calibration.child(1, 0.4, static_cast<double>(0.12f));
  const Examined& refused = counts.by_chance[probability_bin(first)];
  EXPECT_EQ(refused.examined, 1);
  EXPECT_EQ(refused.accepted, 0);
  EXPECT_NEAR(refused.estimate, first, 1e-9);
  const Examined& accepted = counts.by_chance[probability_bin(second)];
  EXPECT_EQ(accepted.accepted, 1);
  EXPECT_NEAR(accepted.estimate, second, 1e-6);
  EXPECT_EQ(counts.by_number[7].steps, 1);
  EXPECT_EQ(counts.by_number[7].tokens, 2);
  EXPECT_EQ(plain.by_number[7].tokens, 2) << "whatever growth made of it";
  EXPECT_TRUE(plain.by_chance.empty());
}

TEST(NodeCounts, JsonAndBack) {
  NodeCounts counts;
  counts.by_draft_prob[19] = {3, 2, 2.9};
  counts.by_position[{1, 0}] = {3, 2, 2.9};
  const nlohmann::json json = counts;
  EXPECT_EQ(nlohmann::json(nlohmann::json::parse(json.dump()).get<NodeCounts>()), json);
  EXPECT_TRUE(counts.is_sound());
  NodeCounts twice = counts;
  twice += counts;
  EXPECT_EQ(twice.total().examined, 6);
  for (const char* bad : {R"([1, [1, 2]])", R"([["a", [1, 0, 0.1]]])", "3"}) {
    nlohmann::json wrong = json;
    wrong["by_draft_prob"] = nlohmann::json::parse(bad);
    EXPECT_THROW(wrong.get<NodeCounts>(), Error) << bad;
  }
  for (const auto& [bin, wrong] :
       {std::pair<std::size_t, Examined>{20, {1, 0, 0.1}}, {1, {1, 2, 0.1}}, {1, {-1, 0, 0}}}) {
    NodeCounts damaged = counts;
    damaged.by_draft_prob[bin] = wrong;
    EXPECT_FALSE(damaged.is_sound()) << bin;
  }
}

// Under rejection a draft that is the target has every first child accepted.
TEST(NodeCounts, APerfectDraftInTheEngine) {
  const coppice::testing::TinyPair pair({}, 0.0);
  Engine engine = Engine::load(pair.options());
  NodeCounts counts;
  std::int64_t good = 0, steps = 0;
  inside(engine).observer = [&](const StepView& step) {
    if (!step.is_step()) return;
    counts.add(step.tree, step.kept_path(), step.ends_in_tree());
    good += static_cast<std::int64_t>(step.verdict.path.size());
    ++steps;
  };
  GenerateOptions request;
  request.sampling.temperature = 1.0;
  request.speculation = Dyspec{6};
  request.max_new_tokens = 60;
  request.ignore_eos = true;
  const std::vector<TokenId> prompt = {1, 5, 9};
  const Generation g = engine.generate(prompt, request);
  EXPECT_EQ(g.statistics.steps, steps);
  const Examined total = counts.total();
  EXPECT_EQ(total.accepted, good);
  EXPECT_EQ(total.examined, total.accepted) << "the first sibling is always accepted";
}

}  // namespace
}  // namespace coppice::study
