// Automatic sizes of several texts that share their passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "shared_machine.h"
#include "sizing/cost_table.h"

namespace coppice::testing::batch_sizer_test {
namespace {

constexpr int batches[] = {1, 4, 8, 16, 32, 64};

// Llama-2-7B's and llama-68m's shapes on an H200: with the steps that matrix products' buckets
// have.
CostTable h200() {
  return *read_cost_table(
      std::filesystem::path(COPPICE_SOURCE_DIR) / "bench" / "costs" / "h200-7b-68m.json",
      std::nullopt);
}

// Seconds: a row costs this much more, beyond the 64th that much; a large model, whose host and
// draft cost next to nothing.
CostTable dear_beyond_64_rows(double row, double beyond) {
  const auto target = [&](int rows) { return 1.0 + row * rows + beyond * std::max(0, rows - 64); };
  std::vector<PassCosts::Point> points;
  for (const int rows : {1, 64, 128, 1024}) points.push_back({rows, target(rows), target(rows)});
  return {"x", PassCosts(0, 100, points), PassCosts(0, 100, {{1, 0.02, 0.02}, {1024, 0.03, 0.03}})};
}

// Tokens per second of equal texts with chains of one length.
double of_common_length(const CostTable& costs, int texts, int size, double acceptance) {
  StepWork work;
  for (int i = 0; i < texts; ++i) work.add(size, size, SharedMachine::length);
  double seconds = costs.target_seconds(work);
  if (size > 0) {
    seconds += costs.first_draft_seconds(work) + CostTable::host_seconds(work) +
               (size - 1) * costs.later_draft_seconds(work);
  }
  return texts * (1.0 - std::pow(acceptance, size + 1)) / (1.0 - acceptance) / seconds;
}

double of_best_common_length(const CostTable& costs, int texts, double acceptance) {
  double best = 0.0;
  for (int size = 0; size <= 32; ++size) {
    best = std::max(best, of_common_length(costs, texts, size, acceptance));
  }
  return best;
}

double mean_nodes(SharedMachine& machine, int steps) {
  machine.run(steps);
  double nodes = 0.0;
  for (const auto& text : machine.texts()) nodes += text->nodes;
  return nodes / steps / static_cast<double>(machine.texts().size());
}

TEST(BatchSizer, EqualTextsComeToTheBestCommonSize) {
  const CostTable costs = h200();
  for (const Grown grown : {Grown::chains, Grown::trees}) {
    for (const double acceptance : {0.9, 0.7, 0.4}) {
      for (const int texts : batches) {
        SharedMachine machine(costs, costs, nullptr);
        machine.add(texts, {acceptance, 0.0}, grown);
        machine.run(200);
        const double best = of_best_common_length(costs, texts, acceptance);
        EXPECT_GE(machine.run(100), 0.975 * best)
            << texts << " texts, acceptance " << acceptance
            << (grown == Grown::trees ? ", trees" : ", chains");
      }
    }
  }
}

TEST(BatchSizer, SizesShrinkWhereRowsBecomeDear) {
  const CostTable dear = dear_beyond_64_rows(1e-3, 0.02), cheap = dear_beyond_64_rows(1e-5, 0.0);
  double before = 1e9, alone = 0.0;
  for (const int texts : batches) {
    SharedMachine machine(dear, dear, nullptr);
    machine.add(texts, {0.8, 0.2});
    machine.run(150);
    const double nodes = mean_nodes(machine, 50);
    EXPECT_LE(nodes, 1.05 * before) << texts;
    // The pass goes on to where rows become dear, and little further.
    if (texts >= 4 && texts <= 32) {
      EXPECT_NEAR(texts * (1.0 + nodes), 64.0, 10.0) << texts;
    }
    before = nodes;
  }
  EXPECT_LE(before, 0.5) << "64 texts fill the rows that are cheap";
  for (const int texts : batches) {
    SharedMachine machine(cheap, cheap, nullptr);
    machine.add(texts, {0.8, 0.2});
    machine.run(150);
    const double nodes = mean_nodes(machine, 50);
    if (texts == 1) alone = nodes;
    // Or as many as a pass has rows.
    EXPECT_GE(nodes, std::min(0.8 * alone, 0.9 * SharedMachine::most_rows / texts - 1.0)) << texts;
  }
}

TEST(BatchSizer, GoodAndUselessDraftsEachGetWhatTheyShould) {
  const CostTable costs = h200();
  for (const int texts : {8, 16, 32, 64}) {
    for (const int good : {texts / 4, texts / 2, 3 * texts / 4}) {
      SharedMachine machine(costs, costs, nullptr);
      machine.add(good, {0.8, 0.1}, Grown::chains);
      machine.add(texts - good, {0.6, 0.3, true}, Grown::chains);
      machine.run(300);
      const double rate = machine.run(100);
      double best = 0.0;
      for (int size = 0; size <= 24; ++size) {
        StepWork work;
        for (int i = 0; i < texts; ++i) {
          work.add(i < good ? size : 0, i < good ? size : 0, SharedMachine::length);
        }
        double seconds = costs.target_seconds(work), tokens = texts;
        if (size > 0) {
          seconds += costs.first_draft_seconds(work) + CostTable::host_seconds(work) +
                     (size - 1) * costs.later_draft_seconds(work);
          tokens += good * (0.8 - std::pow(0.8, size + 1)) / 0.2;
        }
        best = std::max(best, tokens / seconds);
      }
      EXPECT_GE(rate, 0.96 * best) << good << " good texts of " << texts;
      for (int i = good; i < texts; ++i) {
        EXPECT_LE(machine.texts()[static_cast<std::size_t>(i)]->nodes, 30.0);
      }
    }
  }
}

// Texts come and go, and each has to find out anew: a draft that is always sure and always wrong.
TEST(BatchSizer, AUselessDraftCostsLittleMoreThanPlainDecoding) {
  const CostTable costs = h200();
  const ToldDraft::Kind useless = {0.6, 0.3, true};
  for (const int texts : {4, 8, 16, 32, 64}) {
    SharedMachine machine(costs, costs, nullptr);
    machine.add(texts, useless);
    constexpr int tokens = 128;
    EXPECT_GE(machine.run(tokens), 0.98 * machine.plain()) << texts << " texts that begin together";
    std::size_t next = 0;
    int steps = 0;
    const double rate = machine.run(600, [&] {
      // One after the other, each after about as many tokens.
      for (; next < static_cast<std::size_t>(++steps * texts / tokens); ++next) {
        machine.texts()[next % machine.texts().size()] = machine.make(useless);
      }
    });
    EXPECT_GE(rate, 0.98 * machine.plain()) << texts << " texts";
  }
}

PassCosts scaled(const PassCosts& costs, double factor, std::int32_t from_rows = 1) {
  std::vector<PassCosts::Point> points;
  for (std::int32_t rows = 1; rows <= 257; ++rows) {
    const double seconds = (rows >= from_rows ? factor : 1.0) * costs.seconds(rows, 1);
    points.push_back({rows, seconds, seconds});
  }
  return PassCosts(1, 256, points);
}

TEST(BatchSizer, AWrongTableIsFoundOut) {
  const CostTable truth = h200();
  for (const int texts : {8, 32}) {
    SharedMachine right(truth, truth, nullptr);
    right.add(texts, {0.7, 0.2});
    right.run(200);
    const double best = right.run(200);
    const CostTable wrong[] = {
        {"all too dear", scaled(truth.target, 4.0), scaled(truth.draft, 4.0)},
        {"all too cheap", scaled(truth.target, 0.25), scaled(truth.draft, 0.25)},
        {"drafting too dear", truth.target, scaled(truth.draft, 8.0)},
        {"drafting too cheap", truth.target, scaled(truth.draft, 0.25)},
        {"judging too dear", scaled(truth.target, 2.0, texts + 1), truth.draft},
        {"judging too cheap", scaled(truth.target, 0.5, texts + 1), truth.draft},
    };
    for (const CostTable& table : wrong) {
      CostCorrection correction;
      SharedMachine machine(truth, table, &correction);
      machine.add(texts, {0.7, 0.2});
      machine.run(600);
      EXPECT_GE(machine.run(200), 0.96 * best) << texts << " texts, " << table.fingerprint;
    }
  }
}

// The table was measured with one text. That a pass over several costs more, plain or not, says
// nothing against speculation, from a batch's first steps on.
TEST(BatchSizer, WhatAllJointPassesCostIsNotHeldAgainstSpeculation) {
  const CostTable believed = h200();
  for (const int texts : {8, 16, 64}) {
    const CostTable truth{"dearer", scaled(believed.target, 1.4, 2), believed.draft};
    SharedMachine right(truth, truth, nullptr);
    right.add(texts, {0.65, 0.2});
    const double best = right.run(60);
    ASSERT_GE(best, 1.2 * right.plain()) << texts;
    CostCorrection correction;
    SharedMachine machine(truth, believed, &correction);
    machine.add(texts, {0.65, 0.2});
    EXPECT_GE(machine.run(60), 0.9 * best) << texts << " texts";
  }
}

// One text of a batch that stays behind goes on as if it had always been alone.
TEST(BatchSizer, WhoIsLeftAloneSpeculatesAgain) {
  const CostTable costs = dear_beyond_64_rows(1e-3, 0.05);
  SharedMachine machine(costs, costs, nullptr);
  machine.add(64, {0.8, 0.1});
  machine.run(300);
  EXPECT_LE(mean_nodes(machine, 50), 0.2);
  machine.texts().resize(1);
  machine.run(20);
  EXPECT_GE(mean_nodes(machine, 20), 8.0);
}

// In a batch, slow texts stay longest: their tokens are worth more.
TEST(BatchSizer, SlowTextsPayLess) {
  const CostTable costs = h200();
  SharedMachine machine(costs, costs, nullptr), fast(costs, costs, nullptr);
  machine.add(32, {0.55, 0.1});
  machine.add(32, {0.85, 0.1});
  fast.add(64, {0.85, 0.1});
  const double of_fast = mean_nodes(fast, 200);
  machine.run(200);
  const auto nodes = [&](std::size_t from) {
    double sum = 0.0;
    for (std::size_t i = from; i < from + 32; ++i) sum += machine.texts()[i]->nodes;
    return sum / 32.0 / 200.0;
  };
  EXPECT_LT(nodes(32), 0.9 * of_fast) << "the fast ones leave rows to the slow";
}

// Texts that begin together end together: those that luck has left behind get more.
TEST(BatchSizer, WhoIsBehindCatchesUp) {
  const CostTable costs = h200();
  const auto nodes = [&](int left) {
    SharedMachine machine(costs, costs, nullptr);
    machine.add(16, {0.7, 0.1});
    for (auto& text : machine.texts()) text->left = 100;
    machine.run(1);
    machine.texts().front()->left = left;
    machine.run(1);
    return machine.texts().front()->nodes;
  };
  EXPECT_GT(nodes(150), 1.3 * nodes(100));
}

// A text that begins expects what others have shown.
TEST(BatchSizer, NewTextsKnowWhatOthersHaveShown) {
  const CostTable costs = h200();
  const ToldDraft::Kind poor = {0.2, 0.1};
  SharedMachine machine(costs, costs, nullptr);
  machine.add(64, poor);
  const double first = machine.run(1);
  machine.run(50);
  machine.texts().clear();
  machine.add(64, poor);
  const double later = machine.run(1);
  EXPECT_GT(later, 1.2 * first) << "the first ones had to find out";
  EXPECT_GE(later, 0.98 * machine.plain());
}

// However few rows a pass has left, all trees together fit them.
TEST(BatchSizer, TreesFitTheRowsThatAreLeft) {
  const CostTable costs = dear_beyond_64_rows(1e-5, 0.0);
  BatchSizer sizes(costs, nullptr);
  std::vector<SequenceSizer> texts(16,
                                   SequenceSizer(costs, nullptr, AcceptanceRule::rejection, 64));
  for (const int most : {0, 1, 5, 40}) {
    std::vector<BatchSizer::Text> joint;
    for (SequenceSizer& text : texts) {
      joint.emplace_back().size = &text;
      joint.back().prior = {&text.calibration(), 64, 100};
      joint.back().tokens_left = 100;
    }
    StepPrices::Step step;
    step.texts = 16;
    step.kv_tokens = 16 * 50;
    EXPECT_LE(sizes.begin(step, joint, most), most);
    EXPECT_EQ(std::count_if(joint.begin(), joint.end(),
                            [](const BatchSizer::Text& text) { return text.speculates; }),
              std::min(most, 16));
  }
}

// Texts whose noise is not their own grow by themselves, at prices as if all did the same.
TEST(BatchSizer, TextsApartComeNearTheCommonSize) {
  const CostTable costs = h200();
  for (const double acceptance : {0.9, 0.7, 0.4}) {
    for (const int texts : batches) {
      SharedMachine apart(costs, costs, nullptr, Growing::apart);
      apart.add(texts, {acceptance, 0.0});
      apart.run(200);
      EXPECT_GE(apart.run(100), 0.96 * of_best_common_length(costs, texts, acceptance))
          << texts << " texts, acceptance " << acceptance;
    }
  }
}

// All answers of a batch: together they end sooner than apart, and never later than plain ones.
TEST(BatchSizer, AnswersEndSoonerTogether) {
  const CostTable costs = h200();
  double ratios = 0.0;
  int count = 0;
  for (const int texts : {8, 16, 32, 64}) {
    for (const double acceptance : {0.75, 0.6, 0.5}) {
      const auto answers = [&](Growing growing) {
        SharedMachine machine(costs, costs, nullptr, growing);
        DraftStartPolicy draft_start(AcceptanceRule::rejection);
        double sum = 0.0;
        for (int batch = 0; batch < 4; ++batch) {
          sum += machine.answers(texts, {acceptance, 0.25}, 128, 128, &draft_start) / 4.0;
        }
        return sum;
      };
      const double together = answers(Growing::together);
      EXPECT_GE(together, 0.98) << texts << " texts, acceptance " << acceptance;
      ratios += std::log(together / answers(Growing::apart));
      ++count;
    }
  }
  EXPECT_GE(std::exp(ratios / count), 1.015);
}

}  // namespace
}  // namespace coppice::testing::batch_sizer_test
