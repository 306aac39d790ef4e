// Tables and figures of a made-up summary: what they name, number and leave out.
#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <map>
#include <set>

#include "study/figures/text.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

constexpr double none = std::numeric_limits<double>::quiet_NaN();

Cell cell_of(Policy policy, std::int32_t size, double temperature = 0.0) {
  Cell cell;
  cell.policy = policy;
  cell.tree_size = size;
  cell.temperature = temperature;
  return cell;
}

SummaryRow row_of(const Cell& cell, const Estimate& accepted_length) {
  SummaryRow row;
  row.cell = cell;
  row.prompts = accepted_length.n;
  row.accepted_length = accepted_length;
  row.speedup = row.speedup_with_prefill = {1.5, none, none, accepted_length.n};
  row.steps = 10;
  row.lengths = {0, 4, 0, 6};
  return row;
}

Summary sample() {
  Summary summary;
  summary.rows = {row_of(cell_of(Policy::none, 0), {1, none, none, 3}),
                  row_of(cell_of(Policy::dyspec, 0), {3, 2.5, 3.5, 8}),
                  row_of(cell_of(Policy::dyspec, 16), {4, none, none, 3}),
                  row_of(cell_of(Policy::specinfer, 16), {3.5, 3, 4, 8})};
  summary.comparisons = {
      {2, 3, {{0.5, 0.25, 0.75, 8}, 0.0004, 0.012}, {{0.9, 0.8, 1, 8}, 0.2, 0.4}},
      {1, 2, {{-1, none, none, 3}, none, none}, {{2, none, none, 3}, none, none}}};
  return summary;
}

std::size_t column(const Table& table, const std::string& name) {
  for (std::size_t c = 0; c < table.columns.size(); ++c) {
    if (table.columns[c].name == name) return c;
  }
  ADD_FAILURE() << "no column " << name;
  return 0;
}

std::string at(const Table& table, std::size_t row, const std::string& name) {
  return table.rows.at(row).at(column(table, name));
}

TEST(TableText, NumbersAsPrinted) {
  EXPECT_EQ(with_interval({4.031, 3.26, 5.557, 8}, 2), "4.03 [3.26, 5.56]");
  EXPECT_EQ(with_interval({4.031, none, none, 3}, 2), "4.03");
  EXPECT_EQ(with_interval({none, none, none, 0}, 2), "-");
  EXPECT_EQ(signed_interval({0.22, -0.11, 0.34, 8}, 2), "+0.22 [-0.11, +0.34]");
  EXPECT_EQ(p_text(0.0004), "<0.001");
  EXPECT_EQ(p_text(0.0123), "0.012");
  EXPECT_EQ(p_text(none), "-");
}

TEST(StudyTables, PromptsStandBesideIntervals) {
  const Table table = summary_table(sample().rows);
  EXPECT_EQ(at(table, 1, "prompts"), "8");
  EXPECT_EQ(at(table, 1, "accepted length [95%]"), "3.00 [2.50, 3.50]");
  EXPECT_EQ(at(table, 2, "prompts"), "3");
  EXPECT_EQ(at(table, 2, "accepted length [95%]"), "4.00") << "too few prompts for an interval";
}

TEST(StudyTables, AutoIsWhatCostsChoose) {
  const Table table = summary_table(sample().rows);
  EXPECT_EQ(at(table, 0, "policy"), "plain");
  EXPECT_EQ(at(table, 0, "tree"), "");
  EXPECT_EQ(at(table, 1, "tree"), "auto");
  EXPECT_EQ(at(table, 2, "tree"), "16");
  Summary given = sample();
  given.rows[3].cell.tree_size = 0;
  given.rows[3].cell.widths = {4, 4};
  given.rows[3].cell.given_size = 20;
  EXPECT_EQ(at(summary_table(given.rows), 3, "tree"), "20");
}

// Where something looks up, each row that does has the accepted of the drafted, by step.
TEST(StudyTables, LookedUpTokensAreCounted) {
  Summary summary = sample();
  const auto has_column = [&] {
    return std::ranges::any_of(step_table(summary).columns,
                               [](const auto& column) { return column.name == "looked up"; });
  };
  EXPECT_FALSE(has_column());
  summary.rows[2].cell.looks_up = true;
  summary.rows[2].looked_up = 4.0;
  summary.rows[2].nodes.looked_up = {25, 20, 16.0};
  ASSERT_TRUE(has_column());
  EXPECT_EQ(at(step_table(summary), 2, "policy"), "dyspec+lookup");
  EXPECT_EQ(at(step_table(summary), 2, "looked up"), "2.00 of 4.00");
  EXPECT_EQ(at(step_table(summary), 1, "looked up"), "-");
}

TEST(StudyTables, PairsAreSignedAndAdjusted) {
  const Table table = comparison_table(sample());
  EXPECT_EQ(at(table, 0, "first"), "dyspec 16");
  EXPECT_EQ(at(table, 0, "second"), "specinfer 16");
  EXPECT_EQ(at(table, 0, "accepted length, difference [95%]"), "+0.50 [+0.25, +0.75]");
  EXPECT_EQ(at(table, 0, "p"), "<0.001");
  EXPECT_EQ(at(table, 0, "p (Holm)"), "0.012");
  EXPECT_EQ(at(table, 0, "speed, ratio [95%]"), "0.90 [0.80, 1.00]");
  EXPECT_EQ(at(table, 0, "p of speed (Holm)"), "0.400");
  EXPECT_EQ(at(table, 1, "accepted length, difference [95%]"), "-1.00");
  EXPECT_EQ(at(table, 1, "p (Holm)"), "-");
}

TEST(StudyTables, SpeedsWithAndWithoutPrefillAndOverRounds) {
  Summary summary = sample();
  summary.rows[1].speedup_with_prefill = {1.25, none, none, 3};
  const Table table = speedup_table(summary);
  EXPECT_EQ(at(table, 0, "without prefill [95%]"), "1.50");
  EXPECT_EQ(at(table, 0, "with prefill [95%]"), "1.25");
  EXPECT_TRUE(std::none_of(table.columns.begin(), table.columns.end(),
                           [](const Column& one) { return one.name == "rounds"; }));
  summary.rows[1].rounds_speedup = {1.6, 1.5, 1.7, 3};
  const Table rounds = speedup_table(summary);
  EXPECT_EQ(at(rounds, 1, "rounds"), "3");
  EXPECT_EQ(at(rounds, 1, "speed-up over rounds [95%]"), "1.60 [1.50, 1.70]");
}

TEST(StudyTables, AgreementIsCountedAndPlaced) {
  Summary summary = sample();
  summary.agreements = {{0.0, Acceptance::rejection, 24, {}},
                        {0.8, Acceptance::coupled, 12, {{"a cell", "0f", 1, 0, 6, 5, -1}}}};
  const Table counts = agreement_table(summary);
  EXPECT_EQ(at(counts, 0, "rule"), "any");
  EXPECT_EQ(at(counts, 0, "texts that depart"), "0");
  EXPECT_EQ(at(counts, 1, "texts that depart"), "1");
  const Table places = divergence_table(summary);
  ASSERT_EQ(places.rows.size(), 1u);
  EXPECT_EQ(at(places, 0, "token"), "7");
  EXPECT_EQ(at(places, 0, "found id"), "end");
}

TEST(StudyTables, EveryTableHasItsFormsAndAName) {
  Summary summary = sample();
  summary.kinds = summary.rows;
  for (SummaryRow& row : summary.kinds) row.kind = "books";
  std::set<std::string> names;
  for (const CaptionedTable& one : tables_of(summary)) {
    EXPECT_TRUE(names.insert(one.name).second) << one.name;
    EXPECT_FALSE(one.caption.empty());
    EXPECT_FALSE(one.table.rows.empty()) << one.name;
    for (const auto& row : one.table.rows) EXPECT_LE(row.size(), one.table.columns.size());
    EXPECT_NO_THROW(
        static_cast<void>(to_csv(one.table) + to_latex(one.table) + to_html(one.table)));
  }
  const Table csv = summary_csv(summary);
  EXPECT_EQ(csv.rows[0].size(), csv.columns.size());
  EXPECT_EQ(csv.rows.size(), 8u) << "all prompts, then by kind";
  EXPECT_EQ(at(csv, 1, "accepted_length_high"), "3.5");
  EXPECT_EQ(at(csv, 4, "kind"), "books");
  EXPECT_TRUE(names.contains("kinds"));
  EXPECT_FALSE(names.contains("agreement")) << "without rows it is left out";
  EXPECT_EQ(at(tables_of(summary).back().table, 0, "kind"), "books");
}

std::map<std::string, std::string> by_name(std::vector<Figure> figures) {
  std::map<std::string, std::string> named;
  for (Figure& one : figures) named[one.name] = std::move(one.svg);
  return named;
}

FigureGroup group_of(const Summary& summary) {
  FigureGroup group;
  group.policies = {"dyspec", "specinfer"};
  for (const SummaryRow& row : summary.rows) {
    if (!row.cell.plain()) group.rows.push_back(&row);
  }
  return group;
}

TEST(StudyFigures, WithoutDataThereIsNoPicture) {
  const FigureGroup group;
  Chart chart;
  EXPECT_TRUE(group.named("speedup", chart, "").svg.empty());
  chart.series = {{"a", {{1, 1}}}};
  EXPECT_EQ(group.named("speedup", chart, "").name, "speedup_t0_rejection");
}

// A row of shares for each setting: 40% of the steps brought one token, 60% three.
TEST(StudyFigures, LengthsAreSharesOfSteps) {
  const Summary summary = sample();
  const auto figures = by_name(figures_of(group_of(summary)));
  const std::string& svg = figures.at("accepted_lengths_t0_rejection");
  EXPECT_NE(svg.find(">dyspec 16: 4.00<"), std::string::npos);
  std::size_t forty = 0;
  for (auto at = svg.find(">40<"); at != svg.npos; at = svg.find(">40<", at + 1)) ++forty;
  EXPECT_EQ(forty, 3u) << "of three settings; plain decoding has none";
  EXPECT_TRUE(figures.contains("speedup_t0_rejection"));
}

// What is compared with another run's plain decoding has a star in the picture of speed-ups, too.
TEST(StudyFigures, SpeedsOfTwoRunsHaveAStar) {
  Summary summary = sample();
  const auto stars = [&](const char* name) {
    const std::string svg = by_name(figures_of(group_of(summary))).at(name);
    std::size_t count = 0;
    for (auto at = svg.find(">*<"); at != svg.npos; at = svg.find(">*<", at + 1)) ++count;
    return count;
  };
  EXPECT_EQ(stars("speedup_t0_rejection"), 0u);
  summary.rows[2].other_runs = 1;
  EXPECT_EQ(stars("speedup_t0_rejection"), 1u);
  EXPECT_EQ(stars("accepted_length_t0_rejection"), 0u) << "lengths do not depend on the clock";
  for (const Figure& figure : figures_of(group_of(summary))) {
    const bool says = figure.caption.find("A star marks") != figure.caption.npos;
    EXPECT_EQ(says, figure.name == "speedup_t0_rejection") << figure.name;
  }
}

// Rates of bins of too few tokens are left out.
TEST(StudyFigures, RatesLieAtTheirMeanProbabilities) {
  Summary summary = sample();
  summary.rows[2].nodes.by_draft_prob[3] = {40, 10, 6.4};
  summary.rows[2].nodes.by_draft_prob[4] = {least_counted - 1, 1, 3.0};
  const std::string svg =
      by_name(figures_of(group_of(summary))).at("acceptance_by_draft_probability_t0_rejection");
  // By Clopper and Pearson: tables of the binomial law for 10 of 40.
  EXPECT_NE(svg.find("<title>dyspec: 0.16, 0.25 [0.1269, 0.412]</title>"), std::string::npos)
      << svg;
  EXPECT_EQ(svg.find("<title>dyspec: 0.15"), std::string::npos);
  EXPECT_NE(svg.find(" target passes, 59 judged draft tokens</text>"), std::string::npos) << svg;
}

}  // namespace
}  // namespace coppice::study
