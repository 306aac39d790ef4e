// results.jsonl after kills, damage and full disks.
#include "study/results.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <sstream>

#include "base/error.h"
#include "reference/tiny_model.h"
#include "study/files.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;

Record some_record(std::int32_t prompt) {
  Record record;
  record.cell = Cell{}.key();
  record.prompt = prompt;
  record.kind = "tales \"quoted\"\n";
  record.prompt_tokens = 9;
  record.tokens = 20;
  record.prefill_tokens = 1;
  record.finish_reason = "length";
  record.steps = 7;
  record.judged_good = 21;
  record.drafted = 56;
  record.draft_passes = 30;
  record.seconds = {0.1, 0.2, 0.003, 1e-7, 0.4, 0.05, 1.0 / 3.0};
  record.nodes.by_draft_prob[3] = {20, 14, 3.5, 4.25};
  record.nodes.joint[3][4] = 56;
  record.tree_sizes = {8, 16, 8, 8, 8, 8, 0};
  record.accepted = {2, 8, 1, 1, 1, 1, 0};
  record.device = "cpu";
  record.dtype = "f32";
  return record;
}

class ResultsFile : public ::testing::Test {
 protected:
  Results open() { return Results(ResultsStore(file_), plan_); }
  void expect_damage(const std::string& contents, const std::string& says) {
    std::ofstream(file_, std::ios::binary | std::ios::trunc) << contents;
    try {
      open();
      FAIL() << "read: " << contents;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
      EXPECT_NE(std::string(error.what()).find("results.jsonl line"), std::string::npos)
          << error.what();
    }
    EXPECT_EQ(testing::bytes_of(file_), contents) << "damage is left for a person to look at";
  }

  coppice::testing::TemporaryFolder folder_;
  fs::path file_ = folder_.path() / "results.jsonl";
  StudyPlan plan_{{Cell{}}, 4, {0.6}};
};

TEST_F(ResultsFile, ComesBackAsItWas) {
  const Record record = some_record(2);
  const OracleRecord oracle{0.6, 1, "tales", {{16, 8, 29.125}, {64, 5, 31.0625}}};
  {
    Results results = open();
    results.add(record);
    results.add(oracle);
    EXPECT_TRUE(results.has(plan_.cells[0], 2));
  }
  const Results results = open();
  ASSERT_EQ(results.records().size(), 1u);
  EXPECT_EQ(to_line(results.records()[0]), to_line(record));
  EXPECT_EQ(results.records()[0].seconds.other, 1.0 / 3.0) << "to the last bit";
  ASSERT_EQ(results.oracle().size(), 1u);
  EXPECT_EQ(to_line(results.oracle()[0]), to_line(oracle));
  EXPECT_TRUE(results.has(plan_.cells[0], 2));
  EXPECT_FALSE(results.has(plan_.cells[0], 1));
  EXPECT_TRUE(results.has_oracle(0.6, 1));
  EXPECT_FALSE(results.has_oracle(0.6, 2));
}

TEST_F(ResultsFile, ATornLastLineIsCutOffWhereverItWasTorn) {
  {
    Results results = open();
    for (const std::int32_t prompt : {0, 1}) results.add(some_record(prompt));
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
    ASSERT_EQ(static_cast<std::int32_t>(results.records().size()), lines) << bytes;
    for (std::int32_t prompt = lines; prompt < 2; ++prompt) results.add(some_record(prompt));
    ASSERT_EQ(testing::bytes_of(file_), whole) << "cut at byte " << bytes;
  }
}

TEST_F(ResultsFile, OtherDamageIsToldByLine) {
  const std::string good = to_line(some_record(0)) + "\n";
  const std::string next = to_line(some_record(1)) + "\n";
  expect_damage(good + good, "line 2: not a result of this study: it stands there twice");
  expect_damage(good + "\n" + next, "line 2");
  expect_damage(good + next.substr(0, 40) + "\n" + next, "line 2");
  expect_damage(good + "{}\n", "line 2: not a result of this study: a value is missing");
  expect_damage(to_line(some_record(4)) + "\n",
                "line 1: not a result of this study: there is no prompt 4");
  Record other = some_record(0);
  other.cell = "chain of mine";
  expect_damage(to_line(other) + "\n", "no cell is named 'chain of mine'");
  other = some_record(0);
  other.judged_good = 3;
  expect_damage(to_line(other) + "\n", "its counts contradict each other");
  other = some_record(0);
  other.seconds.verify = -1.0;
  expect_damage(to_line(other) + "\n", "seconds of verify are out of range");
  expect_damage(to_line(OracleRecord{0.5, 0, "", {}}) + "\n",
                "no cell is named 'oracle temperature=0.5'");
}

// A file at its size limit behaves like a full disk; the limit holds for a child process only.
TEST_F(ResultsFile, AFullDiskLosesNothing) {
  const std::string first = to_line(some_record(0)) + "\n";
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit = {first.size() + 20, first.size() + 20};
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) _exit(9);
    try {
      Results results = open();
      results.add(some_record(0));
      try {
        results.add(some_record(1));
        _exit(8);
      } catch (const Error& error) {
        const bool told = std::string(error.what()).find("free some space") != std::string::npos;
        _exit(told && results.records().size() == 1 && !results.has(plan_.cells[0], 1) ? 0 : 7);
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
  EXPECT_NO_THROW(results.add(some_record(1)));
}

}  // namespace
}  // namespace coppice::study
