// Records of speculation: files, steps, what they read, and passes that keep what they are told.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/pair.h"
#include "reference/files.h"
#include "workload/speculation_record.h"
#include "workload/speculation_replay.h"
#include "workload/templates.h"

namespace coppice::workload {
namespace {

using nlohmann::json;
using testing::error_of;
using testing::expect_says;
using testing::TemplateFile;

json small_record() {
  return {{"Tree_Structure", {{0}, {1}, {0, 0}, {0, 1}, {0, 0, 0}}},
          {"Token_Tree_size", 6},
          {"Records",
           {{{"prompt", {"Once", "again"}}, {"Accept_length", {1, 4, 0, 2}}},
            {{"prompt", "Twice"}, {"Accept_length", {3}}}}}};
}

SpeculationFile record_from(const json& value) {
  return read_speculation(TemplateFile(value.dump()).path());
}

template <typename Damage>
std::string refusal_of_record(Damage damage) {
  json record = small_record();
  damage(record);
  return error_of([&] { record_from(record); });
}

TEST(SpeculationFile, ReadsTreeAndRecords) {
  const SpeculationFile file = record_from(small_record());
  EXPECT_EQ(file.tree.size(), 5);
  EXPECT_EQ(file.tree.height(), 3);
  ASSERT_EQ(file.records.size(), 2u);
  EXPECT_EQ(file.records[0].prompt, "Once");
  EXPECT_EQ(file.records[0].accepted, (std::vector<std::int32_t>{1, 4, 0, 2}));
  EXPECT_EQ(file.records[1].prompt, "Twice");
  EXPECT_EQ(file.records[1].name, "record 1");
}

TEST(SpeculationFile, SaysWhatIsWrongAndWhere) {
  expect_says(refusal_of_record([](json& r) { r["Records"][0]["Accept_length"][1] = 5; }),
              "record 0: \"Accept_length\"[1], under a tree of depth 3, is 5");
  expect_says(refusal_of_record([](json& r) { r["Records"][1]["Accept_length"] = json::array(); }),
              "record 1: \"Accept_length\" is []");
  expect_says(refusal_of_record([](json& r) { r["Records"][1].erase("Accept_length"); }),
              "record 1: \"Accept_length\" is missing");
  expect_says(refusal_of_record([](json& r) {
                r["Tree_Structure"][2] = {3, 0};
              }),
              "\"Tree_Structure\"");
  expect_says(refusal_of_record([](json& r) { r["Tree_Structure"] = json::array(); }),
              "has no nodes");
  expect_says(refusal_of_record([](json& r) { r["Tree_Structure"][1] = -1; }),
              "\"Tree_Structure\"[1] is -1");
  expect_says(refusal_of_record([](json& r) { r["Records"] = json::array(); }),
              "\"Records\" is [], not a list of at least one record; correct the file");
  expect_says(refusal_of_record([](json& r) { r["Tree_Structure"] = 3; }),
              "\"Tree_Structure\" is 3, not a list of paths; correct the file");
  expect_says(error_of([] { record_from(json::array()); }), "a list of templates is for reasoning");
}

TEST(SpeculationRecord, GoesOnToTheTokensAskedFor) {
  const AcceptanceRecord record = record_from(small_record()).records[0];
  EXPECT_EQ(steps_of(record, 0, 1), record.accepted);
  EXPECT_EQ(steps_of(record, 5, 1), (std::vector<std::int32_t>{1, 4}));
  EXPECT_EQ(steps_of(record, 3, 1), (std::vector<std::int32_t>{1, 2}));
  const auto longer = steps_of(record, 1000, 1);
  EXPECT_EQ(std::accumulate(longer.begin(), longer.end(), 0), 1000);
  EXPECT_TRUE(std::equal(record.accepted.begin(), record.accepted.end(), longer.begin()));
  for (std::size_t i = 4; i < longer.size(); ++i) {
    EXPECT_GE(longer[i], 1);
    EXPECT_LE(longer[i], 4);
  }
  EXPECT_EQ(longer, steps_of(record, 1000, 1));
  EXPECT_NE(longer, steps_of(record, 1000, 2));
}

TEST(SpeculationRecord, ReadsTheTextAndTheTree) {
  const SpeculationFile file = record_from(small_record());
  const Reads reads = reads_of(file.tree, 10, file.records[0].accepted);
  // Texts of 10, 11, 15 and 15 tokens; depths 0, 1, 1, 2, 2, 3.
  EXPECT_EQ(reads.iterations, 4);
  EXPECT_EQ(reads.generated, 7);
  EXPECT_EQ(reads.by_tree, 10 + 11 + 15 + 15 + 4 * 6);
  EXPECT_EQ(reads.per_query, 6 * (10 + 11 + 15 + 15) + 4 * (1 + 2 + 2 + 3 + 3 + 4));
  EXPECT_EQ(reads.peak_by_tree, 21);
}

TEST(SpeculationRecord, PathsGoToTheDepthAskedFor) {
  const TreeShape tree = record_from(small_record()).tree;
  EXPECT_TRUE(path_of(tree, 0).empty());
  for (std::int32_t length = 1; length <= 3; ++length) {
    const auto path = path_of(tree, length);
    ASSERT_EQ(std::ssize(path), length);
    EXPECT_EQ(tree.parent(path[0]), 0);
    for (std::size_t i = 1; i < path.size(); ++i) EXPECT_EQ(tree.parent(path[i]), path[i - 1]);
  }
  EXPECT_NE(error_of([&] { path_of(tree, 4); }, ErrorKind::usage), "");
}

TEST(SpeculationReplay, KeepsWhatTheRecordSays) {
  const testing::TinyPair pair;
  EngineOptions options = pair.options();
  options.draft.clear();
  Engine engine = Engine::load(options);
  const SpeculationFile file = record_from(small_record());
  ReplaySettings settings;
  std::int64_t heard = 0;
  settings.progress = [&](std::int64_t tokens) { heard = tokens; };
  ReplayReport report;
  const auto prompt = prompt_of_length(engine, file.records[0].prompt, 30, 1);
  ASSERT_EQ(prompt.size(), 30u);
  replay(engine, file.tree, prompt, file.records[0].accepted, settings, report);
  EXPECT_TRUE(report.finished);
  EXPECT_EQ(report.passes, 4);
  EXPECT_EQ(report.generated, 7);
  EXPECT_EQ(heard, 7);
  // In the last pass: 30 + 5 tokens but the root, and root and tree.
  EXPECT_EQ(report.peak_kv, 30 + 5 - 1 + 6);
  EXPECT_GT(report.seconds.verify, 0.0);
  EXPECT_NE(error_of(
                [&] {
                  replay(engine, file.tree, prompt, std::vector<std::int32_t>(400, 4), settings,
                         report);
                },
                ErrorKind::usage)
                .find("context"),
            std::string::npos);
  std::stop_source stop;
  stop.request_stop();
  settings.stop = stop.get_token();
  ReplayReport stopped;
  replay(engine, file.tree, prompt, file.records[0].accepted, settings, stopped);
  EXPECT_FALSE(stopped.finished);
  EXPECT_EQ(stopped.passes, 0);
}

}  // namespace
}  // namespace coppice::workload
