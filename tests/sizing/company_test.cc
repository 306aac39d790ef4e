// Automatic sizes of several texts that share their passes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <vector>

#include "shared_machine.h"
#include "sizing/cost_table.h"

namespace coppice::testing::company_test {
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

TEST(Company, EqualTextsComeToTheBestCommonSize) {
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

TEST(Company, SizesShrinkWhereRowsBecomeDear) {
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
    EXPECT_GE(nodes, 0.8 * alone) << texts;
  }
}

TEST(Company, GoodAndUselessDraftsEachGetWhatTheyShould) {
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
TEST(Company, AUselessDraftCostsLittleMoreThanPlainDecoding) {
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

TEST(Company, AWrongTableIsFoundOut) {
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
TEST(Company, WhatAllJointPassesCostIsNotHeldAgainstSpeculation) {
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
TEST(Company, WhoIsLeftAloneSpeculatesAgain) {
  const CostTable costs = dear_beyond_64_rows(1e-3, 0.05);
  SharedMachine machine(costs, costs, nullptr);
  machine.add(64, {0.8, 0.1});
  machine.run(300);
  EXPECT_LE(mean_nodes(machine, 50), 0.2);
  machine.texts().resize(1);
  machine.run(20);
  EXPECT_GE(mean_nodes(machine, 20), 8.0);
}

TEST(Company, OneTextOfACompanyOfOneIsAlone) {
  const CostTable costs = h200();
  AutoSize alone(costs, nullptr, ChildDraw::sampled, 64),
      joined(costs, nullptr, ChildDraw::sampled, 64);
  Company company;
  company.step = 7;
  company.texts = 1;
  company.kv_tokens = 50;
  joined.join(company);
  company.settle(costs.draft);
  ASSERT_TRUE(alone.begin_step(Company::alone(50)));
  ASSERT_TRUE(joined.begin_step(company));
  for (std::int32_t n = 0; n < 64; ++n) {
    EXPECT_EQ(alone.verify_cost(n), joined.verify_cost(n));
    EXPECT_EQ(alone.node_cost(n), joined.node_cost(n));
    EXPECT_EQ(alone.pass_cost(n + 1, n), joined.pass_cost(n + 1, n));
  }
}

// Of equals, each pays for its share of a draft pass, and whoever goes deeper pays for all of it.
TEST(Company, DraftPassesAreSharedByThoseWhoGoThatDeep) {
  const CostTable costs = h200();
  UsualStep shallow;
  shallow.record(2, 2.0, 2);
  Company company;
  company.texts = 8;
  company.kv_tokens = 8 * 50;
  for (int i = 0; i < 7; ++i) company.join_adapting(shallow, 0.0, 2.0);
  AutoSize size(costs, nullptr, ChildDraw::sampled, 64);
  size.join(company);
  company.settle(costs.draft);
  ASSERT_TRUE(size.begin_step(company));
  EXPECT_NEAR(size.pass_cost(1, 1) / size.pass_cost(1, 2),
              costs.draft.seconds(8, 50) / 8.0 / costs.draft.seconds(1, 50), 1e-9);
}

Company company_of(int texts, const std::vector<UsualStep>& steps) {
  Company company;
  company.texts = texts;
  company.kv_tokens = std::int64_t{50} * texts;
  for (int i = 0; i < texts; ++i) {
    company.join_adapting(steps[static_cast<std::size_t>(i) % steps.size()], 0.0, 2.0);
  }
  company.settle(h200().draft);
  return company;
}

// Of a text that has never made a second draft pass, which would be worth so much to it.
UsualStep stopped_after_one_pass(int texts, double worth) {
  UsualStep usual;
  usual.record(1, 1.8, 1);
  DraftDemand::ByPass of_passes{};
  of_passes[1] = worth;
  usual.record_demand(of_passes, company_of(texts, {UsualStep{}}).turns);
  return usual;
}

// A pass that no text could pay for is begun if all can.
TEST(Company, WhatNobodyHasBegunIsBegunIfItPaysTogether) {
  const PassCosts draft = h200().draft;
  for (const int texts : {16, 64}) {
    const double part = draft.seconds(texts, 50) / texts;
    const Company company = company_of(texts, {stopped_after_one_pass(texts, 1.5 * part)});
    EXPECT_EQ(company.sharing[1], texts);
    EXPECT_EQ(company.sharing[2], 0) << "is worth nothing";
    EXPECT_EQ(company_of(texts, {stopped_after_one_pass(texts, 0.9 * part)}).sharing[1], 0);
  }
  // If one in four wants it, these share it.
  const UsualStep content = stopped_after_one_pass(64, 0.0),
                  keen = stopped_after_one_pass(64, 2.0 * draft.seconds(16, 50) / 16);
  EXPECT_GE(company_of(64, {keen, content, content, content}).sharing[1], 16);
}

// Of a batch, slow texts stay longest: their tokens are worth more.
TEST(Company, SlowTextsPayLess) {
  const CostTable costs = h200();
  SharedMachine machine(costs, costs, nullptr);
  machine.add(32, {0.55, 0.1});
  machine.add(32, {0.85, 0.1});
  machine.run(200);
  const auto cost = [&](std::size_t i) { return machine.texts()[i]->size.pass_cost(1, 0); };
  EXPECT_LT(cost(0), 0.9 * cost(63));
}

// Prices that are for the moment too high for a text that has won do not end its speculation.
TEST(Company, WhoHasWonGoesOnThroughBarrenSteps) {
  const CostTable costs = h200();
  AutoSize size(costs, nullptr, ChildDraw::sampled, 64);
  size.begin_text(1.0);
  UsualStep others;
  others.record(2, 2.5, 2);
  TokenTree tree;
  const auto step = [&](int nodes) {
    Company company;
    company.texts = 64;
    company.kv_tokens = 64 * 50;
    for (int i = 0; i < 63; ++i) company.join_adapting(others, 1.0, 2.5);
    size.join(company);
    company.settle(costs.draft);
    if (!size.begin_step(company)) return false;
    StepWork work;
    for (int i = 0; i < 63; ++i) work.add(2, 2, 50);
    work.add(nodes, 1, 50);
    tree.reset(0);
    std::vector<std::int32_t> path;
    for (int n = 0; n < nodes; ++n) {
      tree.add(n, n, 0, 0.9f, tree.path_prob.back());
      path.push_back(n + 1);
    }
    size.record(tree, path, 1, work);
    return true;
  };
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(step(4));
  for (int i = 0; i < 6; ++i) EXPECT_TRUE(step(0)) << i;
}

}  // namespace
}  // namespace coppice::testing::company_test
