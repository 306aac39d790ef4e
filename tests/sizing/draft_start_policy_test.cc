// When drafts of texts that share their passes begin.
#include "sizing/draft_start_policy.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "shared_machine.h"
#include "sizing/cost_table.h"

namespace coppice::testing::draft_start_policy_test {
namespace {

constexpr int prompt = 128;

// About the shipped pair's on one thread of a processor: from some 4 rows on each costs the same.
CostTable processor() {
  const auto both = [](std::vector<std::pair<int, double>> seconds) {
    std::vector<PassCosts::Point> points;
    for (const auto& [rows, us] : seconds) points.push_back({rows, us * 1e-6, us * 1e-6});
    return points;
  };
  CostTable costs;
  costs.target = PassCosts(
      1, 256,
      both({{1, 1000}, {2, 1080}, {4, 1300}, {8, 2120}, {16, 3970}, {64, 15900}, {512, 127000}}));
  costs.draft =
      PassCosts(1, 256, both({{1, 57}, {4, 90}, {8, 140}, {16, 260}, {64, 1000}, {512, 8000}}));
  costs.first_draft = PassCosts(1, 256, both({{1, 135}, {2, 135}}));
  return costs;
}

CostTable h200() {
  return *read_cost_table(
      std::filesystem::path(COPPICE_SOURCE_DIR) / "bench" / "costs" / "h200-7b-68m.json",
      std::nullopt);
}

// Rows of the target that cost little, a draft whose prompts take an eighth of the time in which so
// many texts of 128 tokens are decoded plainly: speculation pays well, but not in a few tokens.
CostTable dear_prompts(int texts) {
  const double prompts = 64.0 / texts;
  CostTable costs;
  costs.target = PassCosts(1, 256, {{1, 1.0, 1.0}, {512, 1.2, 1.2}});
  costs.draft = PassCosts(1, 256, {{1, 0.02, 0.02}, {64, 0.05, 0.05}, {512, prompts, prompts}});
  return costs;
}

TEST(DraftStartPolicy, AnswersOfABatchThatCannotWinLoseLittle) {
  const CostTable costs = processor();
  for (const int texts : {4, 8, 16, 32}) {
    for (const int tokens : {64, 250}) {
      for (const double acceptance : {0.65, 0.3}) {
        SharedMachine machine(costs, costs, nullptr);
        const ToldDraft::Kind kind = {acceptance, 0.1};
        ASSERT_LE(machine.answers(texts, kind, prompt, tokens, nullptr), tokens == 64 ? 0.93 : 0.97)
            << "the prompts' passes alone cost more than may be lost";
        DraftStartPolicy draft_start(AcceptanceRule::rejection);
        double inverse = 0.0;
        constexpr int batches = 6;
        for (int batch = 0; batch < batches; ++batch) {
          const double ratio = machine.answers(texts, kind, prompt, tokens, &draft_start);
          inverse += 1.0 / ratio / batches;
          EXPECT_GE(ratio, 0.975) << texts << " texts of " << tokens << ", batch " << batch;
        }
        EXPECT_GE(1.0 / inverse, 0.985) << texts << " texts of " << tokens;
      }
    }
  }
}

TEST(DraftStartPolicy, WhereDraftsAreCheapNothingIsPutOff) {
  const CostTable costs = h200();
  for (const int texts : {4, 8, 16, 32, 64}) {
    for (const double acceptance : {0.5, 0.6, 0.75}) {
      const ToldDraft::Kind kind = {acceptance, 0.1};
      SharedMachine at_once(costs, costs, nullptr), machine(costs, costs, nullptr);
      DraftStartPolicy draft_start(AcceptanceRule::rejection);
      for (int batch = 0; batch < 3; ++batch) {
        EXPECT_EQ(machine.answers(texts, kind, prompt, 128, &draft_start),
                  at_once.answers(texts, kind, prompt, 128, nullptr))
            << texts << " texts, acceptance " << acceptance << ", batch " << batch;
      }
    }
  }
}

TEST(DraftStartPolicy, OthersFollowTheProbes) {
  for (const int texts : {4, 16}) {
    const CostTable costs = dear_prompts(texts);
    const ToldDraft::Kind kind = {0.75, 0.1};
    double first = 0.0, later = 0.0, first_at_once = 0.0, later_at_once = 0.0;
    constexpr int engines = 12;
    for (int engine = 0; engine < engines; ++engine) {
      SharedMachine at_once(costs, costs, nullptr), machine(costs, costs, nullptr);
      at_once.set_seed(1000 * static_cast<std::uint32_t>(engine));
      machine.set_seed(1000 * static_cast<std::uint32_t>(engine));
      DraftStartPolicy draft_start(AcceptanceRule::rejection);
      first += machine.answers(texts, kind, prompt, 128, &draft_start);
      later += machine.answers(texts, kind, prompt, 128, &draft_start);
      first_at_once += at_once.answers(texts, kind, prompt, 128, nullptr);
      later_at_once += at_once.answers(texts, kind, prompt, 128, nullptr);
    }
    ASSERT_GE(later_at_once, 1.3 * engines) << texts;
    EXPECT_GE(first, 0.85 * first_at_once) << texts;
    EXPECT_GE(later, 0.99 * later_at_once) << texts;
  }
}

// A draft that is always sure and always wrong, and later a good one.
TEST(DraftStartPolicy, AUselessDraftIsPutOffUntilItIsGood) {
  const CostTable costs = dear_prompts(8);
  SharedMachine machine(costs, costs, nullptr);
  DraftStartPolicy draft_start(AcceptanceRule::rejection);
  const ToldDraft::Kind useless = {0.6, 0.3, true}, good = {0.75, 0.1};
  EXPECT_LE(machine.answers(8, useless, prompt, 128, nullptr), 0.9) << "all at once";
  for (int batch = 0; batch < 10; ++batch) {
    EXPECT_GE(machine.answers(8, useless, prompt, 128, &draft_start), 0.975) << batch;
  }
  double last = 0.0;
  for (int batch = 0; batch < 20; ++batch) {
    last = machine.answers(8, good, prompt, 128, &draft_start);
  }
  EXPECT_GE(last, 1.2);
}

DraftStartPolicy::Batch batch_of(int texts, int tokens_left) {
  DraftStartPolicy::Batch batch;
  batch.texts = texts;
  batch.kv_tokens = std::int64_t{SharedMachine::length} * texts;
  batch.missing_rows = std::int64_t{prompt} * texts;
  batch.tokens_left = std::int64_t{tokens_left} * texts;
  return batch;
}

// Prices say that it pays, texts have lost: these are believed, for a time.
TEST(DraftStartPolicy, WhatTextsHaveWonOutweighsPrices) {
  const CostTable costs = dear_prompts(8);
  DraftStartPolicy draft_start(AcceptanceRule::rejection);
  TokenTree chain;
  chain.reset(0);
  chain.add(0, 1, 0, 0.9f, 0.9);
  const std::vector<std::int32_t> accepted = {1};
  for (int step = 0; step < 20; ++step) draft_start.record(chain, accepted);
  DraftStartPolicy::Batch batch = batch_of(8, 128);
  const DraftStartPolicy::Text text = {128, prompt, 32};
  ASSERT_EQ(draft_start.decide(batch, text, costs, nullptr), DraftStartPolicy::Begin::now);
  for (int step = 0; step < 8 * 600; ++step) draft_start.record_gain(8, -0.3, 1.3);
  ++batch.step;
  batch.probes = 1;
  EXPECT_EQ(draft_start.decide(batch, text, costs, nullptr), DraftStartPolicy::Begin::later);
  DraftStartPolicy::Batch others = batch_of(4, 128);
  others.step = ++batch.step;
  EXPECT_EQ(draft_start.decide(others, text, costs, nullptr), DraftStartPolicy::Begin::now)
      << "of other numbers of texts they say nothing";
  for (int step = 0; step < 8 * 10000; ++step) draft_start.record_put_off(8);
  ++batch.step;
  EXPECT_EQ(draft_start.decide(batch, text, costs, nullptr), DraftStartPolicy::Begin::now);
}

// The clock says what prompts cost: the table's passes have a result for every row.
TEST(DraftStartPolicy, PromptsCostWhatTheyTook) {
  const CostTable costs = dear_prompts(8);
  DraftStartPolicy draft_start(AcceptanceRule::rejection);
  DraftStartPolicy::Batch batch = batch_of(4, 16);
  batch.probes = 1;
  const DraftStartPolicy::Text text = {16, prompt, 32};
  EXPECT_EQ(draft_start.decide(batch, text, costs, nullptr), DraftStartPolicy::Begin::later);
  for (int pass = 0; pass < 50; ++pass) draft_start.record_prefill(0.01, 4.0);
  ++batch.step;
  EXPECT_EQ(draft_start.decide(batch, text, costs, nullptr), DraftStartPolicy::Begin::now);
}

}  // namespace
}  // namespace coppice::testing::draft_start_policy_test
