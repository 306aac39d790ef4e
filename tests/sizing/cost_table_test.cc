#include "sizing/cost_table.h"

#include <gtest/gtest.h>

#include <fstream>
#include <string>
#include <string_view>

#include "base/error.h"
#include "reference/tiny_model.h"

namespace coppice::cost_table_test {
namespace {

PassCosts steps(double base, double slope) {
  std::vector<PassCosts::Point> points;
  for (const int rows : {1, 2, 4, 8, 16, 32, 64}) {
    points.push_back({rows, base + slope * rows, base + 2 * slope * rows});
  }
  return PassCosts(0, 100, points);
}

TEST(PassCosts, InterpolatesRowsAndPrefix) {
  const PassCosts costs = steps(1e-3, 1e-5);
  EXPECT_DOUBLE_EQ(costs.seconds(4, 0), 1e-3 + 4e-5);
  EXPECT_DOUBLE_EQ(costs.seconds(4, 100), 1e-3 + 8e-5);
  EXPECT_NEAR(costs.seconds(4, 50), 1e-3 + 6e-5, 1e-12);
  EXPECT_NEAR(costs.seconds(6, 0), 1e-3 + 6e-5, 1e-12);
  EXPECT_NEAR(costs.seconds(128, 0), 1e-3 + 128e-5, 1e-9);
}

// Products see all rows; each text's attention sees its share of the rows and its own length.
TEST(PassCosts, OfSeveralTextsEachSeesItsOwnTokens) {
  const PassCosts costs = steps(1e-3, 1e-5);
  for (const std::int32_t rows : {1, 5, 64, 100}) {
    EXPECT_EQ(costs.seconds(rows, 1, 70), costs.seconds(rows, 70));
  }
  const double products = 1e-3 + 32e-5, growth_of_four_rows = 0.7 * 4e-5;
  EXPECT_NEAR(costs.seconds(32, 8, 8 * 70), products + 8 * growth_of_four_rows, 1e-12);
  EXPECT_NEAR(costs.seconds(32, 8, 0), products, 1e-12);
  StepWork work;
  for (int i = 0; i < 8; ++i) work.add(3, 2, 70);
  const CostTable table{"x", costs, costs};
  EXPECT_NEAR(table.target_seconds(work), costs.seconds(32, 8, 8 * 70), 1e-12);
  EXPECT_NEAR(table.later_draft_seconds(work), costs.seconds(12, 8, 8 * 70), 1e-12);
}

TEST(PassCosts, BeyondTheTableTheUpperHalfGoesOn) {
  const PassCosts costs(0, 1,
                        {{1, 1e-3, 1e-3}, {8, 1e-3, 1e-3}, {16, 2e-3, 2e-3}, {17, 9e-3, 9e-3}});
  EXPECT_NEAR(costs.seconds(17, 0), 9e-3, 1e-12);
  EXPECT_NEAR(costs.seconds(26, 0), 9e-3 + 8e-3, 1e-12) << "as from 8 rows to 17";
}

TEST(PassCosts, DipsAreTakenOut) {
  // A dip in rows at the short prefix, one row that the long prefix makes cheaper, and a growth
  // with the prefix that falls with rows: far beyond the table these would make costs negative.
  const PassCosts costs(1, 10, {{1, 7.5e-3, 9.5e-3}, {2, 9.0e-3, 9.6e-3}, {8, 8.5e-3, 8.0e-3}});
  for (const std::int32_t prefix : {1, 5, 10, 100, 5000}) {
    double before = 0.0;
    for (std::int32_t rows = 1; rows <= 40; ++rows) {
      EXPECT_GE(costs.seconds(rows, prefix), before) << rows << " rows over " << prefix;
      EXPECT_GE(costs.seconds(rows, prefix), costs.seconds(rows, 1));
      before = costs.seconds(rows, prefix);
    }
  }
}

TEST(CostTable, SurvivesWritingAndReading) {
  const testing::TemporaryFolder folder;
  const auto file = folder.path() / "costs.json";
  EXPECT_FALSE(read_cost_table(file, "x").has_value());
  const CostTable table{"x", steps(1e-3, 1e-5), steps(1e-4, 1e-6)};
  write_cost_table(file, table);
  const auto back = read_cost_table(file, "x");
  ASSERT_TRUE(back.has_value());
  EXPECT_EQ(back->target.seconds(9, 33), table.target.seconds(9, 33));
  EXPECT_EQ(back->draft.seconds(9, 33), table.draft.seconds(9, 33));
  EXPECT_EQ(back->first_draft_seconds(33), table.draft.seconds(2, 33)) << "an older table";
  EXPECT_THROW(read_cost_table(file, "another machine"), Error);
  CostTable whole = table;
  whole.first_draft = steps(2e-4, 1e-6);
  whole.doubts = 2;
  write_cost_table(file, whole);
  const auto again = read_cost_table(file, "x");
  ASSERT_TRUE(again.has_value());
  EXPECT_EQ(again->first_draft_seconds(33), whole.first_draft.seconds(2, 33));
  EXPECT_EQ(again->doubts, 2);
  const std::string text = text_of(whole);
  const std::size_t digit = text.find("\"doubts\": 2") + std::string_view("\"doubts\": ").size();
  for (const char* doubts : {"-1", "3", "2147483647", "4294967296", "1e300", "\"2\""}) {
    std::ofstream(file) << std::string(text).replace(digit, 1, doubts);
    EXPECT_THROW(read_cost_table(file, "x"), Error) << doubts;
  }
  for (const char* bad :
       {"", "{", "[]", "{\"fingerprint\": 3}",
        "{\"fingerprint\": \"x\", \"target\": {\"prefix_short\": 0, \"prefix_long\": 1, "
        "\"points\": []}, \"draft\": {}}"}) {
    std::ofstream(file) << bad;
    EXPECT_THROW(read_cost_table(file, "x"), Error) << bad;
  }
  EXPECT_THROW(read_cost_table(folder.path(), "x"), Error) << "a folder";
  std::ofstream(file) << R"({"fingerprint": "x", "target": {"prefix_short": -2147483648,
    "prefix_long": 5, "points": [{"rows": 1, "seconds_short": 1, "seconds_long": 1}]}, "draft": {}})";
  EXPECT_THROW(read_cost_table(file, "x"), Error) << "prefix out of range";
  EXPECT_THROW(write_cost_table(folder.path() / "missing" / "costs.json", table), Error);
}

}  // namespace
}  // namespace coppice::cost_table_test
