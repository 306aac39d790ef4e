// The line on what is fastest, from made-up times.
#include "study/report/verdict.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "study/report/summary.h"

namespace coppice::study {
namespace {

/// A summary whose rows bring 100 tokens a prompt in seconds that vary by `spread` over prompts, in
/// another order for each row.
class Times {
 public:
  explicit Times(std::size_t prompts, double spread = 0.05) : prompts_(prompts), spread_(spread) {}

  void add(Policy policy, std::int32_t size, double speed, double temperature = 0.6) {
    SummaryRow row;
    row.cell.policy = policy;
    row.cell.tree_size = size;
    row.cell.temperature = temperature;
    row.prompts = static_cast<std::int32_t>(prompts_);
    PromptColumns columns;
    double seconds = 0.0;
    for (std::size_t p = 0; p < prompts_; ++p) {
      const std::size_t place = (p * (2 * columns_.size() + 1)) % prompts_;
      const double share = static_cast<double>(place) / static_cast<double>(prompts_ - 1) - 0.5;
      columns.kept.push_back(100.0);
      columns.steps.push_back(50.0);
      columns.decoded.push_back(100.0);
      columns.decode_seconds.push_back(100.0 / speed * (1.0 + spread_ * share));
      columns.plain_decoded.push_back(100.0);
      columns.plain_seconds.push_back(1.0);
      seconds += columns.decode_seconds.back();
    }
    row.tokens_per_second.value = 100.0 * static_cast<double>(prompts_) / seconds;
    row.speedup.value = row.tokens_per_second.value / 100.0;
    summary_.rows.push_back(row);
    columns_.push_back(columns);
  }
  const Summary& summary() {
    summary_.verdicts = verdicts_of(summary_.rows, columns_);
    return summary_;
  }
  std::string sentence(std::size_t which = 0) {
    summary();
    return verdict_sentence(summary_, summary_.verdicts.at(which));
  }

 private:
  std::size_t prompts_;
  double spread_;
  Summary summary_;
  std::vector<PromptColumns> columns_;
};

TEST(Verdict, NamesTheFastestTreeAndWhatItBeats) {
  Times times(11);
  times.add(Policy::none, 0, 100);
  times.add(Policy::chain, 4, 150);
  times.add(Policy::chain, 8, 140);
  times.add(Policy::dyspec, 16, 210);
  times.add(Policy::sequoia, 16, 180);
  const Verdict& verdict = times.summary().verdicts.at(0);
  EXPECT_EQ(verdict.leader, 3u);
  EXPECT_EQ(verdict.baseline, 1u) << "the faster chain, not plain decoding";
  EXPECT_NEAR(verdict.speed.estimate.value, 1.4, 1e-9);
  EXPECT_LT(verdict.speed.estimate.low, 1.4);
  EXPECT_TRUE(verdict.is_separable());
  EXPECT_TRUE(verdict.alike.empty());
  const std::string words = times.sentence();
  EXPECT_TRUE(words.starts_with("Temperature 0.6, rejection: dyspec 16 is fastest, 1.40 [1."))
      << words;
  EXPECT_NE(words.find("] times the speed of chain 4 (p <0.001 after Holm, 11 prompts)."),
            std::string::npos)
      << words;
  const Table table = verdict_table(times.summary());
  ASSERT_EQ(table.rows.size(), 1u);
  EXPECT_EQ(table.rows[0][2], "dyspec 16");
  EXPECT_EQ(table.rows[0][3], "chain 4");
  EXPECT_EQ(table.rows[0][4], "11");
}

TEST(Verdict, SaysWhatIsNotSeparable) {
  Times close(11, 0.8);
  close.add(Policy::none, 0, 100);
  close.add(Policy::dyspec, 16, 102);
  EXPECT_FALSE(close.summary().verdicts.at(0).is_separable());
  EXPECT_NE(close.sentence().find("nothing is separable from plain decoding; dyspec 16 made 1."),
            std::string::npos)
      << close.sentence();

  Times two(11, 0.8);
  two.add(Policy::none, 0, 100);
  two.add(Policy::dyspec, 16, 202);
  two.add(Policy::sequoia, 16, 200);
  two.add(Policy::specinfer, 16, 110);
  const Verdict& verdict = two.summary().verdicts.at(0);
  EXPECT_TRUE(verdict.is_separable());
  EXPECT_EQ(verdict.alike, std::vector<std::size_t>{2});
  EXPECT_EQ(verdict_table(two.summary()).rows.at(0).back(), "sequoia 16");
  EXPECT_EQ(verdict_table(close.summary()).columns.back().name, "separable");
  EXPECT_TRUE(two.sentence().ends_with("; not separable from it: sequoia 16.")) << two.sentence();
}

TEST(Verdict, SaysThatNoTreePays) {
  Times times(11);
  times.add(Policy::none, 0, 100, 0.0);
  times.add(Policy::dyspec, 16, 70, 0.0);
  times.add(Policy::chain, 4, 90, 0.0);
  EXPECT_TRUE(times.sentence().starts_with(
      "Temperature 0: plain decoding is fastest; the next, dyspec 16, made 0.70 ["))
      << times.sentence();
}

TEST(Verdict, AsksOfChainsWhetherTheyPay) {
  Times times(11);
  times.add(Policy::none, 0, 100);
  times.add(Policy::chain, 4, 150);
  EXPECT_NE(times.sentence().find("chain 4 is fastest, 1.50 ["), std::string::npos);
  Times plain(11);
  plain.add(Policy::none, 0, 100);
  EXPECT_TRUE(plain.summary().verdicts.empty());
  EXPECT_TRUE(verdicts_of(std::vector<SummaryRow>(2), std::vector<PromptColumns>(2)).empty())
      << "no prompts";
}

TEST(Verdict, HasNoIntervalOfFewPrompts) {
  Times times(4);
  times.add(Policy::none, 0, 100);
  times.add(Policy::dyspec, 16, 200);
  EXPECT_FALSE(times.summary().verdicts.at(0).is_separable());
  EXPECT_EQ(times.sentence(),
            "Temperature 0.6, rejection: nothing is separable on 4 prompts, too few for an "
            "interval; dyspec 16 made 2.00 times the speed of plain decoding.");
}

TEST(Verdict, HasOneForEachTemperatureAndStarsTimesOfTwoRuns) {
  Times times(11);
  for (const double temperature : {0.0, 0.6}) {
    times.add(Policy::none, 0, 100, temperature);
    times.add(Policy::dyspec, 16, temperature > 0.0 ? 150 : 180, temperature);
  }
  Summary summary = times.summary();
  ASSERT_EQ(summary.verdicts.size(), 2u);
  EXPECT_NEAR(summary.verdicts[0].speed.estimate.value, 1.8, 1e-9);
  EXPECT_NEAR(summary.verdicts[1].speed.estimate.value, 1.5, 1e-9);
  EXPECT_EQ(verdict_sentence(summary, summary.verdicts[1]).find('*'), std::string::npos);
  summary.rows[3].other_runs = 2;
  EXPECT_NE(verdict_sentence(summary, summary.verdicts[1]).find("] * times"), std::string::npos);
  EXPECT_EQ(verdict_sentence(summary, summary.verdicts[0]).find('*'), std::string::npos);
}

}  // namespace
}  // namespace coppice::study
