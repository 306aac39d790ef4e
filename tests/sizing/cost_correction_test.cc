#include "sizing/cost_correction.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace coppice {
namespace {

TEST(CostCorrection, NothingSeenIsTheTable) {
  const CostCorrection correction;
  for (const Work work : {Work::plain, Work::verify, Work::first_draft, Work::draft, Work::host}) {
    EXPECT_NEAR(correction.factor(work, 5), 1.0, 0.05);
  }
  EXPECT_LT(correction.optimistic_factor(Work::verify, 5), correction.factor(Work::verify, 5));
}

TEST(CostCorrection, TellsTheMachineFromAKindOfWork) {
  CostCorrection machine, draft;
  for (int i = 0; i < 300; ++i) {
    const double later = i < 200 ? 1.0 : 2.0;
    for (CostCorrection* correction : {&machine, &draft}) {
      const double others = correction == &machine ? later : 1.0;
      correction->observe(Work::verify, 4, others * 1e-3, 1e-3);
      correction->observe(Work::first_draft, 1, others * 1e-4, 1e-4);
      correction->observe(Work::host, 1, others * 1e-5, 1e-5);
      correction->observe(Work::draft, 1, later * 1e-4, 1e-4);
      correction->end_step();
    }
  }
  EXPECT_NEAR(machine.factor(Work::draft), 2.0, 0.2);
  EXPECT_NEAR(draft.factor(Work::draft), 2.0, 0.2);
  // Plain passes were not seen. If all else takes twice as long from some step on, so will they.
  EXPECT_NEAR(machine.factor(Work::plain), 2.0, 0.3);
  EXPECT_NEAR(draft.factor(Work::plain), 1.0, 0.25);
}

TEST(CostCorrection, NearRowCountsAreAlikeAndFarOnesAreNot) {
  CostCorrection correction;
  for (int i = 0; i < 50; ++i) {
    correction.observe(Work::verify, 3, 1.0e-3, 1e-3);
    correction.observe(Work::verify, 48, 1.5e-3, 1e-3);
    correction.end_step();
  }
  EXPECT_NEAR(correction.factor(Work::verify, 3), 1.0, 0.1);
  EXPECT_NEAR(correction.factor(Work::verify, 4), 1.0, 0.15);
  EXPECT_NEAR(correction.factor(Work::verify, 48), 1.5, 0.1);
  EXPECT_NEAR(correction.factor(Work::verify, 40), correction.factor(Work::verify, 48), 0.15);
  EXPECT_GT(correction.factor(Work::verify, 1000), 1.2) << "beyond the last knot it is that one's";
}

TEST(CostCorrection, InterruptionsCountByTheirMean) {
  // One pass in ten takes five times as long.
  CostCorrection correction;
  std::mt19937 random(3);
  for (int i = 0; i < 400; ++i) {
    correction.observe(Work::plain, 1, random() % 10 == 0 ? 5e-3 : 1e-3, 1e-3);
    correction.end_step();
  }
  double mean = 0.0;
  for (int i = 0; i < 400; ++i) {
    correction.observe(Work::plain, 1, random() % 10 == 0 ? 5e-3 : 1e-3, 1e-3);
    correction.end_step();
    mean += correction.factor(Work::plain) / 400.0;
  }
  EXPECT_NEAR(mean, 1.4, 0.25);
}

TEST(CostCorrection, OnePassChangesLittleOnceMuchIsKnown) {
  CostCorrection correction;
  for (int i = 0; i < 100; ++i) {
    correction.observe(Work::verify, 4, 1e-3, 1e-3);
    correction.end_step();
  }
  correction.observe(Work::verify, 4, 10.0, 1e-3);
  EXPECT_LT(correction.factor(Work::verify, 4), 4.0);
  for (int i = 0; i < 20; ++i) {
    correction.observe(Work::verify, 4, 1e-3, 1e-3);
    correction.end_step();
  }
  EXPECT_NEAR(correction.factor(Work::verify, 4), 1.0, 0.2);
  // Nor does a clock that stood still, or a table of nothing.
  correction.observe(Work::verify, 4, 0.0, 1e-3);
  correction.observe(Work::verify, 4, 1e-3, 0.0);
  EXPECT_TRUE(std::isfinite(correction.factor(Work::verify, 4)));
}

TEST(CostCorrection, WhatIsNotSeenBecomesUncertainAgain) {
  CostCorrection correction;
  for (int i = 0; i < 100; ++i) {
    correction.observe(Work::verify, 16, 1e-3, 1e-3);
    correction.end_step();
  }
  const auto optimism = [&] {
    return correction.optimistic_factor(Work::verify, 16) / correction.factor(Work::verify, 16);
  };
  const double sure = optimism();
  EXPECT_GT(sure, 0.6);
  for (int i = 0; i < 3000; ++i) correction.end_step();
  EXPECT_LT(optimism(), sure - 0.1);
}

// A step of several texts is one observation, and a plain one says nothing of a text alone.
TEST(CostCorrection, StepsOfSeveralTexts) {
  const PassCosts costs(0, 100, {{1, 1e-3, 1e-3}, {512, 2e-3, 2e-3}});
  const CostTable table{"x", costs, costs};
  StepWork plain;
  for (int i = 0; i < 8; ++i) plain.add(0, 0, 50);
  StepSeconds took;
  took.verify = 2.0 * table.target_seconds(plain);
  CostCorrection correction;
  for (int i = 0; i < 100; ++i) {
    correction.observe_step(table, plain, took);
    StepSeconds alone;
    alone.verify = table.target.seconds(1, 50);
    correction.observe_step(table, StepWork::alone(0, 0, 50), alone);
  }
  EXPECT_NEAR(correction.factor(Work::joint, 8), 2.0, 0.2);
  EXPECT_NEAR(correction.factor(Work::plain), 1.0, 0.1);
  // Rows of prompts are not what the table's are.
  StepWork with_prompt = plain;
  with_prompt.prompt_rows = 200;
  took.verify = 1.0;
  const double before = correction.factor(Work::joint, 8);
  for (int i = 0; i < 50; ++i) correction.observe_step(table, with_prompt, took);
  EXPECT_EQ(correction.factor(Work::joint, 8), before);
}

}  // namespace
}  // namespace coppice
