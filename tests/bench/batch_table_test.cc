// The table of bench/batch, and what --settings of benches name.
#include "batch_table.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <variant>
#include <vector>

#include "median.h"
#include "settings.h"

namespace coppice::bench {
namespace {

TEST(BatchTable, TakesMediansOfRoundsAndTheirOwnRatios) {
  BatchRow row;
  row.setting = "dyspec auto";
  row.prompt_tokens = 100;
  row.new_tokens = 50;
  row.texts = 4;
  // Seconds of the prompts, of all; steps, judged, drafted and shared sums; draft, verify and
  // preparing.
  row.rounds = {{1.0, 3.0, 10, 20, 40, 35, 0.5, 1.25, 0.5},
                {2.0, 12.0, 10, 30, 60, 40, 1.0, 8.0, 0.0},
                {1.5, 5.5, 20, 50, 20, 60, 0.5, 3.0, 0.25}};
  row.over_plain = {2.0, 1.0, 1.5};
  row.over_other = {3.0, 5.0, 4.0};
  EXPECT_DOUBLE_EQ(row.rate(0), 100.0);
  const nlohmann::ordered_json json = json_of({row}).at(0);
  EXPECT_EQ(json["pl"], 4);
  EXPECT_EQ(json["n_kv"], 600);
  EXPECT_EQ(json["t_pp"], 1.5);
  EXPECT_DOUBLE_EQ(json["speed_pp"], 400 / 1.5);
  EXPECT_EQ(json["t_tg"], 4.0);
  EXPECT_EQ(json["speed_tg"], 50.0);
  EXPECT_EQ(json["t"], 5.5);
  EXPECT_DOUBLE_EQ(json["speed"], 600 / 5.5);
  EXPECT_EQ(json["accepted_length"], 2.5);
  EXPECT_EQ(json["tree_size_mean"], 4.0);
  EXPECT_EQ(json["batch_mean"], 3.5);
  EXPECT_EQ(json["over_plain"], 1.5);
  EXPECT_EQ(json["over_turns"], 4.0);
  EXPECT_EQ(json_of({row}, "copies").at(0)["over_copies"], 4.0);
  EXPECT_EQ(json["draft_part"], 0.125);
  EXPECT_EQ(json["verify_part"], 0.75);
  EXPECT_EQ(json["rest_part"], 0.125);
  EXPECT_EQ(json["t_preparing"], 0.25);
  EXPECT_EQ(json["t_preparing_by_round"], (std::vector<double>{0.5, 0.0, 0.25}));
  EXPECT_EQ(json["speed_tg_by_round"], (std::vector<double>{100.0, 20.0, 50.0}));
  const std::string table = table_of({row});
  EXPECT_NE(table.find("|    12.5 |     75.0 |   12.5 |    0.250 |"), std::string::npos) << table;
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 3);
  EXPECT_NE(table.find("|    100 |     50 |    4 |    600 |    1.500 |   266.67 |    4.000 |"),
            std::string::npos)
      << table;
}

TEST(BatchTable, MediansOfAnEvenNumberAreBetween) {
  EXPECT_EQ(median({4.0, 1.0, 2.0, 3.0}), 2.5);
  EXPECT_EQ(median({}), 0.0);
}

TEST(BenchSettings, NamePoliciesSizesAndRules) {
  const auto settings = plain_and("chain:4,dyspec:0:coupled,dyspec:8:auto:plain");
  ASSERT_EQ(settings.size(), 4u);
  EXPECT_TRUE(std::holds_alternative<Plain>(request_of(settings[0], 0.0).speculation));
  EXPECT_EQ(settings[1].name, "chain 4");
  EXPECT_EQ(std::get<Chain>(request_of(settings[1], 0.5).speculation).length, 4);
  EXPECT_EQ(request_of(settings[1], 0.5).sampling.temperature, 0.5);
  EXPECT_TRUE(request_of(settings[1], 0.5).ignore_eos);
  EXPECT_EQ(settings[2].name, "dyspec auto coupled");
  EXPECT_EQ(request_of(settings[2], 0.0).acceptance, Acceptance::coupled);
  EXPECT_EQ(settings[3].name, "dyspec 8 auto plain");
  EXPECT_EQ(request_of(settings[3], 0.0).acceptance, Acceptance::automatic);
  EXPECT_TRUE(settings[3].drafting.plain_values);
  for (const char* bad : {"oak:1", "chain", "chain:x", "chain:99999", "dyspec:1:fast"}) {
    EXPECT_THROW(plain_and(bad), std::runtime_error) << bad;
  }
}

}  // namespace
}  // namespace coppice::bench
