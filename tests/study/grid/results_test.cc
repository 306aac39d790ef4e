// results.jsonl after kills, damage and full disks.
#include "study/grid/results.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "base/checked_lines.h"
#include "base/error.h"
#include "reference/files.h"
#include "reference/tiny_model.h"
#include "study/files/members.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;

Result some_result(const std::string& prompt, std::int32_t round = 0) {
  Result result;
  result.cell = Cell{}.key();
  result.prompt = prompt;
  result.round = round;
  result.turns = {{9, 1, {5, 6, 7}, "tales \"quoted\"\n\u00e9", "length"}, {14, 1, {8}, "", "eos"}};
  result.draft_passes = 30;
  result.seconds = {
      {.draft = 0.2, .drawing = 0.003, .construction = 1e-7, .verify = 0.4, .judging = 0.05},
      0.1,
      1.0 / 3.0};
  result.nodes.by_draft_prob[3] = {20, 14, 3.5};
  result.nodes.by_position[{1, 0}] = {20, 14, 3.5};
  result.tree_sizes = {8, 16, 8, 8, 8, 8, 0};
  result.accepted = {2, 8, 1, 1, 1, 1, 0};
  result.kept = {3, 9, 2, 2, 2, 1, 1};  // an end token within a tree
  result.device = "cpu";
  result.dtype = "f32";
  return result;
}

class ResultsFile : public ::testing::Test {
 protected:
  Results open() { return Results(file_, plan_, Access::append); }
  std::string line_of(const Result& result) const {
    return with_checksum(nlohmann::ordered_json(result).dump()) + "\n";
  }
  void write(const std::string& contents) const {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << contents;
  }
  void expect_damage(const std::string& contents, const std::string& says) {
    write(contents);
    const std::string error = testing::error_of([&] { open(); });
    EXPECT_NE(error.find(says), std::string::npos) << error << "\n" << contents;
    EXPECT_NE(error.find("results.jsonl line"), std::string::npos) << error;
    EXPECT_NE(error.find("delete the line"), std::string::npos) << error;
    EXPECT_EQ(testing::bytes_of(file_), contents) << "damage is left for a person to look at";
  }

  coppice::testing::TemporaryFolder folder_;
  fs::path file_ = folder_.path() / "results.jsonl";
  StudyPlan plan_{{Cell{}}, {{"a", "x"}, {"b", "x"}, {"c", "y"}}, 2};
};

TEST_F(ResultsFile, ComesBackAsItWas) {
  const Result result = some_result("c", 1);
  const std::string cell = plan_.cells[0].key();
  {
    Results results = open();
    results.add(result);
    EXPECT_TRUE(results.has(cell, "c", 1));
  }
  const Results results = open();
  ASSERT_EQ(results.results().size(), 1u);
  const Result& back = results.results()[0];
  EXPECT_EQ(line_of(back), line_of(result));
  EXPECT_EQ(back.seconds.other, 1.0 / 3.0) << "to the last bit";
  EXPECT_EQ(back.prompt, "c");
  EXPECT_EQ(back.nodes.total().accepted, 14);
  EXPECT_EQ(back.tokens(), 4);
  EXPECT_EQ(back.decoded(), 2);
  EXPECT_EQ(back.steps(), 7);
  EXPECT_EQ(back.drafted(), 56);
  EXPECT_EQ(back.kept_tokens(), 20);
  EXPECT_TRUE(results.has(cell, "c", 1));
  EXPECT_FALSE(results.has(cell, "c", 0));
  EXPECT_FALSE(results.has(cell, "b", 1));
}

TEST_F(ResultsFile, WhatIsNotAskedForStaysAndIsCounted) {
  {
    Results results = open();
    results.add(some_result("a", 0));
    results.add(some_result("a", 1));
    results.add(some_result("c", 0));
  }
  const std::string before = testing::bytes_of(file_);
  // One round, prompts in another order and one of them gone.
  plan_ = {{Cell{}}, {{"b", "x"}, {"a", "x"}}, 1};
  const Results results = open();
  ASSERT_EQ(results.results().size(), 1u);
  EXPECT_EQ(results.results()[0].prompt, "a");
  EXPECT_EQ(results.others(), 2);
  EXPECT_EQ(testing::bytes_of(file_), before);
}

TEST_F(ResultsFile, ATornLastLineIsCutOffWhereverItWasTorn) {
  {
    Results results = open();
    for (const char* prompt : {"a", "b"}) results.add(some_result(prompt));
  }
  const std::string whole = testing::bytes_of(file_);
  const std::size_t first_line = whole.find('\n') + 1;
  for (std::size_t bytes = 0; bytes <= whole.size(); ++bytes) {
    // Every byte near the ends of lines, every seventh elsewhere.
    const auto near = [&](std::size_t end) { return bytes + 3 > end && bytes < end + 3; };
    if (bytes % 7 != 0 && !near(first_line) && !near(whole.size())) continue;
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << whole.substr(0, bytes);
    const std::int32_t lines = bytes < first_line ? 0 : bytes < whole.size() ? 1 : 2;
    Results results = open();
    ASSERT_EQ(static_cast<std::int32_t>(results.results().size()), lines) << bytes;
    if (lines == 0) results.add(some_result("a"));
    if (lines < 2) results.add(some_result("b"));
    ASSERT_EQ(testing::bytes_of(file_), whole) << "cut at byte " << bytes;
  }
}

TEST_F(ResultsFile, EveryChangedByteIsFound) {
  const std::string whole = line_of(some_result("a")) + line_of(some_result("b"));
  const auto first_line = whole.find('\n');
  for (std::size_t at = 0; at < whole.size(); ++at) {
    // Every byte around the checksums and the ends of lines, where the format is.
    const bool near = (at + 35 > first_line && at < first_line + 5) || at + 35 > whole.size();
    if (!near && at % 5 != 0) continue;
    for (const int bit : {0, 5}) {
      std::string changed = whole;
      changed[at] = static_cast<char>(changed[at] ^ (1 << bit));
      write(changed);
      const std::string error = testing::error_of([&] { open(); });
      const char* line = at <= first_line ? "line 1: " : "line 2: ";
      ASSERT_NE(error.find(line), std::string::npos) << "byte " << at << ", bit " << bit << error;
      ASSERT_NE(error.find("checksum"), std::string::npos) << error;
      ASSERT_EQ(testing::bytes_of(file_), changed);
    }
  }
}

TEST_F(ResultsFile, OtherDamageIsToldByLine) {
  const std::string good = line_of(some_result("a")), next = line_of(some_result("b"));
  expect_damage(good + good, "line 2: no result: it stands there twice");
  expect_damage(good + "\n" + next, "line 2");
  expect_damage(good + next.substr(0, 40) + "\n" + next, "line 2");
  // As versions before checksums wrote them.
  expect_damage(good + nlohmann::ordered_json(some_result("b")).dump() + "\n",
                "line 2: its checksum");
  const auto checked = [](const std::string& object) { return with_checksum(object) + "\n"; };
  expect_damage(checked("{\"a\":1}"), "line 1: no result: \"cell\" is missing");
  expect_damage(checked("{\"prompt\":\"a\"}"), "line 1: no result: \"cell\" is missing");
  Result other = some_result("a");
  other.accepted[1] = 17;
  expect_damage(line_of(other), "its counts contradict each other");
  other = some_result("a");
  other.accepted.pop_back();
  expect_damage(line_of(other), "its counts contradict each other");
  other = some_result("a");
  other.nodes.by_draft_prob[20] = {1, 0, 0.9};
  expect_damage(line_of(other), "its counts contradict each other");
  other = some_result("a");
  other.seconds.verify = -1.0;
  expect_damage(line_of(other), "seconds of verify are out of range");
  other = some_result("a");
  other.round = -1;
  expect_damage(line_of(other), "its counts contradict each other");
}

// A file at its size limit behaves like a full disk; the limit holds for a child process only.
TEST_F(ResultsFile, AFullDiskLosesNothing) {
  const std::string first = line_of(some_result("a"));
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {first.size() + 20, first.size() + 20};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(9);
    try {
      Results results = open();
      results.add(some_result("a"));
      try {
        results.add(some_result("b"));
        _exit(8);
      } catch (const Error& error) {
        const bool told = std::string(error.what()).find("free some space") != std::string::npos;
        _exit(told && results.results().size() == 1 && !results.has(plan_.cells[0].key(), "b", 0)
                  ? 0
                  : 7);
      }
    } catch (...) {
      _exit(6);
    }
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
  EXPECT_EQ(testing::bytes_of(file_), first) << "the part of a line that fitted is taken back";
  Results results = open();
  EXPECT_NO_THROW(results.add(some_result("b")));
}

}  // namespace
}  // namespace coppice::study
