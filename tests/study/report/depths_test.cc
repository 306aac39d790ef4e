// Acceptance by depth, counted by hand.
#include "study/report/depths.h"

#include <gtest/gtest.h>

#include <cmath>

#include "study/report/study_report.h"

namespace coppice::study {
namespace {

TEST(Depths, AreCountedOfAllPassesAndOfThoseBefore) {
  // Two prompts: paths of 0, 2 and 3 tokens, and of 1 and 0.
  DepthCounts counts(2);
  for (const std::int32_t accepted : {0, 2, 3}) counts.add(0, accepted);
  for (const std::int32_t accepted : {1, 0}) counts.add(1, accepted);
  const std::vector<DepthRate> rates = counts.rates(Resampling(2));
  ASSERT_EQ(rates.size(), 3u);
  EXPECT_EQ(rates[0].before, 5);
  EXPECT_EQ(rates[0].reached, 3);
  EXPECT_DOUBLE_EQ(rates[0].share.value, 0.6);
  EXPECT_DOUBLE_EQ(rates[0].given.value, 0.6);
  EXPECT_EQ(rates[1].before, 3);
  EXPECT_DOUBLE_EQ(rates[1].share.value, 0.4);
  EXPECT_DOUBLE_EQ(rates[1].given.value, 2.0 / 3.0);
  EXPECT_EQ(rates[2].before, 2);
  EXPECT_EQ(rates[2].reached, 1);
  EXPECT_DOUBLE_EQ(rates[2].given.value, 0.5);
  EXPECT_TRUE(std::isnan(rates[0].share.low)) << "two prompts have no interval";
  // Their sum is what a pass accepts in the mean.
  EXPECT_NEAR(rates[0].share.value + rates[1].share.value + rates[2].share.value, 6.0 / 5.0, 1e-12);
  EXPECT_TRUE(DepthCounts(3).rates(Resampling(3)).empty());
}

// A text that ends within its tree says nothing of what would have been accepted further down.
TEST(Depths, TextsThatEndAreNoRejections) {
  DepthCounts counts(1);
  counts.add(0, 2);
  counts.add(0, 1);
  counts.add(0, 1, true);
  const std::vector<DepthRate> rates = counts.rates(Resampling(1));
  ASSERT_EQ(rates.size(), 2u);
  EXPECT_EQ(rates[0].before, 3);
  EXPECT_EQ(rates[0].reached, 3);
  EXPECT_EQ(rates[1].before, 2);
  EXPECT_DOUBLE_EQ(rates[1].given.value, 0.5);
  EXPECT_DOUBLE_EQ(rates[1].share.value, 1.0 / 3.0) << "of all passes";
}

TEST(Depths, HaveIntervalsOverPrompts) {
  DepthCounts counts(6);
  for (std::size_t prompt = 0; prompt < 6; ++prompt) {
    for (std::size_t pass = 0; pass < 10; ++pass) counts.add(prompt, pass < 3 + prompt ? 1 : 0);
  }
  const std::vector<DepthRate> rates = counts.rates(Resampling(6));
  ASSERT_EQ(rates.size(), 1u);
  EXPECT_DOUBLE_EQ(rates[0].share.value, 33.0 / 60.0);
  EXPECT_GT(rates[0].share.low, 0.3);
  EXPECT_LT(rates[0].share.low, 0.5);
  EXPECT_GT(rates[0].share.high, 0.6);
  EXPECT_LT(rates[0].share.high, 0.8);
  EXPECT_EQ(rates[0].share.n, 6);
}

Summary by_depth() {
  Summary summary;
  for (const std::int32_t size : {16, 4}) {
    SummaryRow row;
    row.cell.policy = Policy::dyspec;
    row.cell.tree_size = size;
    row.prompts = 8;
    row.runs = 8;
    row.tokens = 2000;
    row.steps = 1000 / size;
    row.depths = {{1000, 800, {0.8, 0.75, 0.85, 8}, {0.8, 0.75, 0.85, 8}},
                  {800, 400, {0.4, 0.35, 0.45, 8}, {0.5, 0.45, 0.55, 8}},
                  {least_counted - 1, 9, {0.009, 0.001, 0.02, 8}, {0.4737, 0.2, 0.7, 8}}};
    summary.rows.push_back(row);
  }
  return summary;
}

TEST(Depths, HaveTablesAndAllCountsForPrograms) {
  const Summary summary = by_depth();
  const Table share = depth_table(summary, &DepthRate::share),
              given = depth_table(summary, &DepthRate::given);
  ASSERT_EQ(share.rows.size(), 2u);
  EXPECT_EQ(share.columns.back().name, "d = 3");
  EXPECT_EQ(share.rows[0], (std::vector<std::string>{"dyspec", "16", "0", "rejection", "8", "62",
                                                     "0.800", "0.400", "0.009"}));
  EXPECT_EQ(given.rows[0], (std::vector<std::string>{"dyspec", "16", "0", "rejection", "8", "62",
                                                     "0.800", "0.500", "0.474"}));
  EXPECT_NE(to_latex(share).find("& d = 3 \\\\"), std::string::npos) << to_latex(share);
  const Table csv = depths_csv(summary);
  ASSERT_EQ(csv.rows.size(), 6u);
  EXPECT_EQ(csv.rows[1],
            (std::vector<std::string>{"dyspec", "16", "0", "rejection", "8", "62", "2", "800",
                                      "400", "0.4", "0.35", "0.45", "0.5", "0.45", "0.55"}));
  EXPECT_EQ(csv.columns.size(), csv.rows[1].size());
  // What accepts nothing has no row.
  Summary plain;
  plain.rows.resize(1);
  EXPECT_TRUE(depth_table(plain, &DepthRate::share).rows.empty());
}

std::string svg_of(const std::vector<Figure>& figures, const std::string& name) {
  for (const Figure& one : figures) {
    if (one.name == name) return one.svg;
  }
  ADD_FAILURE() << "no figure " << name;
  return {};
}

TEST(Depths, FiguresShowTheLargestTreesAndSayOfWhat) {
  const Summary summary = by_depth();
  FigureGroup group;
  group.policies = {"dyspec"};
  for (const SummaryRow& row : summary.rows) group.rows.push_back(&row);
  const std::vector<Figure> figures = figures_of(group);
  const std::string share = svg_of(figures, "acceptance_by_depth_t0_rejection"),
                    given = svg_of(figures, "acceptance_given_depth_t0_rejection");
  EXPECT_NE(share.find(">dyspec 16: 2, 0.4 [0.35, 0.45]<"), std::string::npos) << share;
  EXPECT_EQ(share.find(">dyspec 4"), std::string::npos);
  EXPECT_NE(share.find("dyspec 16: 3, "), std::string::npos);
  EXPECT_NE(given.find(">dyspec 16: 2, 0.5 [0.45, 0.55]<"), std::string::npos) << given;
  EXPECT_EQ(given.find("dyspec 16: 3, "), std::string::npos) << "of too few passes";
  for (const std::string& svg : {share, given}) {
    EXPECT_NE(svg.find(">n: 8 prompts, 8 texts, 2,000 tokens, 62 target passes<"),
              std::string::npos);
  }
}

}  // namespace
}  // namespace coppice::study
