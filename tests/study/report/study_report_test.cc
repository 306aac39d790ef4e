// The report of a whole study of a tiny pair: its figures out of the results themselves, and what
// its page says.
#include "study/report/study_report.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "base/build_commit.h"
#include "base/error.h"
#include "engine/pair.h"
#include "reference/files.h"
#include "study/figures/text.h"
#include "study/peaky_model.h"
#include "study/study.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using coppice::testing::bytes_of;
using coppice::testing::peaky;
using coppice::testing::TemporaryFolder;
using coppice::testing::TinyPair;

class Report : public ::testing::Test {
 protected:
  Report() {
    request_.prompts_file = "made up";
    for (const TokenId token : {5, 9, 12, 31, 44, 50}) {
      request_.prompts.push_back({"", {}, {1, token, 7}, token});
    }
    request_.shared.max_new_tokens = 14;
    request_.rounds = 2;
    lists_.policies = {"dyspec", "chain"};
    lists_.tree_sizes = {4};
    lists_.temperatures = {0.0, 0.8};
    request_.engine = pair_.options();
  }
  StudyOutcome run() {
    Grid grid = make_grid(lists_, request_.shared);
    request_.cells = grid.cells;
    request_.left_out = grid.notes;
    return conduct(request_, out(), {});
  }
  fs::path out() const { return folder_.path() / "study"; }

  TemporaryFolder folder_;
  TinyPair pair_{peaky(), 0.2};
  GridLists lists_;
  StudyRequest request_;
};

TEST_F(Report, SpecBenchsSpeedsAndDepthsAreThoseOfTheResults) {
  const StudyOutcome outcome = run();
  const Results results(out() / results_name, outcome.file.plan);
  std::map<std::string, double> means;
  for (const SummaryRow& row : outcome.summary.rows) {
    double sum = 0.0, texts = 0.0, passes = 0.0, drafts = 0.0;
    std::vector<double> reached(16, 0.0);
    for (const Result& result : results.results()) {
      if (result.cell != row.cell.key()) continue;
      double tokens = 0.0, seconds = result.seconds.decode() + result.seconds.prefill;
      for (const Turn& turn : result.turns) tokens += static_cast<double>(turn.tokens.size());
      sum += tokens / seconds;
      texts += 1.0;
      drafts += static_cast<double>(result.accepted_drafts());
      for (const std::int32_t accepted : result.accepted) {
        passes += 1.0;
        for (std::int32_t d = 1; d <= accepted; ++d) reached[static_cast<std::size_t>(d)] += 1.0;
      }
    }
    EXPECT_EQ(texts, 12.0);
    const double mean = means[row.cell.row_key()] = sum / texts;
    EXPECT_NEAR(row.specbench_tokens_per_second.value, mean, 1e-9 * mean);
    const double of_plain = means.at(row.cell.plain_row_key());
    EXPECT_NEAR(row.specbench_speedup.value, mean / of_plain, 1e-9 * mean / of_plain);
    if (row.cell.plain()) {
      EXPECT_TRUE(row.depths.empty());
      continue;
    }
    EXPECT_LT(row.specbench_speedup.low, row.specbench_speedup.value);
    ASSERT_FALSE(row.depths.empty());
    double all = 0.0;
    for (std::size_t d = 1; d <= row.depths.size(); ++d) {
      const DepthRate& rate = row.depths[d - 1];
      const double before = d == 1 ? passes : reached[d - 1];
      EXPECT_NEAR(rate.share.value, reached[d] / passes, 1e-12);
      EXPECT_NEAR(rate.given.value, reached[d] / before, 1e-12);
      all += rate.share.value;
    }
    EXPECT_EQ(reached[row.depths.size() + 1], 0.0);
    EXPECT_NEAR(all, drafts / passes, 1e-9) << "what a pass accepts in the mean";
  }
}

TEST_F(Report, SaysOfWhatItIsAndWhatItFound) {
  const StudyOutcome outcome = run();
  const std::string page = bytes_of(out() / "report.html");
  const auto place = [&](const std::string& text) { return page.find(escape_markup(text)); };
  ASSERT_EQ(outcome.summary.verdicts.size(), 2u);
  for (const Verdict& verdict : outcome.summary.verdicts) {
    const std::size_t at = place(verdict_sentence(outcome.summary, verdict));
    EXPECT_LT(at, place("Accepted length counts")) << "at the top";
  }
  for (const std::string& said :
       {std::string(speedup_definition), std::string(specbench_definition),
        cat("commit ", build_commit()), outcome.file.runs.at(0).date, outcome.file.runs.at(0).cpu,
        std::string("Sequoia was not run: no setting of it was asked for")}) {
    EXPECT_NE(place(said), page.npos) << said;
  }
  // Every figure and table of the page, and every figure that stands alone, says its n.
  const auto count = [&](const char* what) {
    std::size_t times = 0;
    for (auto at = page.find(what); at != page.npos; at = page.find(what, at + 1)) ++times;
    return times;
  };
  EXPECT_GT(count("<b>Figure "), 8u);
  EXPECT_EQ(count("<b>Figure ") + count("<b>Table "), count(" n: 6 prompts, "));
  for (const auto& entry : fs::directory_iterator(out() / "figures")) {
    EXPECT_NE(bytes_of(entry.path()).find(">n: 6 prompts, "), std::string::npos) << entry.path();
  }
  const std::string csv = bytes_of(out() / "summary.csv");
  for (const char* said :
       {",specbench_speedup,specbench_speedup_low,", speedup_definition, specbench_definition}) {
    EXPECT_NE(csv.find(said), std::string::npos) << said;
  }
  for (const char* name : {"depths", "depths_given", "verdict", "speedups"}) {
    EXPECT_TRUE(fs::exists(out() / "tables" / (std::string(name) + ".csv"))) << name;
    EXPECT_TRUE(fs::exists(out() / "tables" / (std::string(name) + ".tex"))) << name;
  }
}

Summary of_cells(const std::vector<std::pair<Policy, double>>& cells) {
  Summary summary;
  for (const auto& [policy, temperature] : cells) {
    SummaryRow& row = summary.rows.emplace_back();
    row.cell.policy = policy;
    row.cell.temperature = temperature;
  }
  return summary;
}

TEST(Absence, SequoiasIsSaidWithItsReason) {
  const std::vector<std::string> why = {"left out: chain at temperature 0: something",
                                        "left out: sequoia at temperature 0: too deep"};
  EXPECT_EQ(sequoia_sentence(of_cells({{Policy::none, 0.0}, {Policy::sequoia, 0.0}}), why), "");
  EXPECT_EQ(sequoia_sentence(of_cells({{Policy::none, 0.0}}), {}), "") << "nothing speculates";
  EXPECT_EQ(sequoia_sentence(of_cells({{Policy::none, 0.0}, {Policy::dyspec, 0.0}}), {}),
            "Sequoia was not run: no setting of it was asked for (--policies).");
  EXPECT_EQ(
      sequoia_sentence(
          of_cells({{Policy::dyspec, 0.0}, {Policy::dyspec, 0.6}, {Policy::sequoia, 0.6}}), why),
      "Sequoia was not run at temperature 0, rejection acceptance: left out: sequoia at "
      "temperature 0: too deep.");
}

}  // namespace
}  // namespace coppice::study
