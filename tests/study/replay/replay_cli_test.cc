// `coppice record` and `coppice replay` as a shell sees them.
#include <gtest/gtest.h>
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "base/utf8.h"
#include "engine/pair.h"
#include "reference/files.h"

namespace coppice::testing {
namespace {

struct Result {
  int code = -1;
  std::string out, err;
};

class ReplayCommand : public ::testing::Test {
 protected:
  std::string file(const char* name) const { return (folder_.path() / name).string(); }

  Result run(const std::string& tail) {
    const std::string command = "COPPICE_MODELS='" + stories().parent_path().string() + "' '" +
                                COPPICE_BINARY + "' " + tail + " >'" + file("out") + "' 2>'" +
                                file("err") + "'";
    const int status = std::system(command.c_str());
    return {WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status), bytes_of(file("out")),
            bytes_of(file("err"))};
  }

  void expect_error(const std::string& tail, int code, const std::string& says) {
    const Result r = run(tail);
    EXPECT_EQ(r.code, code) << tail << "\n" << r.err;
    EXPECT_EQ(r.out, "") << tail;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << tail << "\n" << r.err;
    EXPECT_NE(r.err.find(says), std::string::npos) << tail << "\n" << r.err;
    EXPECT_TRUE(is_valid_utf8(r.err));
  }

  // Two short texts of the shipped pair.
  std::string record(const std::string& more = "") {
    write_file(file("prompts.txt"), "The captain looked at\nOnce upon a time\n\n");
    return "record --prompts '" + file("prompts.txt") + "' --out '" + file("a.rec") +
           "' --max-new-tokens 6 --nodes 24 --entries 8 --temperature 0.8 --seed 2 " +
           "--threads 1 " + more;
  }

  TemporaryFolder folder_;
};

TEST_F(ReplayCommand, RecordsAndReplays) {
  const Result recorded = run(record());
  ASSERT_EQ(recorded.code, 0) << recorded.err;
  EXPECT_EQ(recorded.out, "");
  EXPECT_NE(recorded.err.find("2 of 2 texts"), std::string::npos);
  const Result r =
      run("replay '" + file("a.rec") +
          "' --policies dyspec-plain,chain,expand-rerank --tree-sizes 3,8 --seeds 2 --csv '" +
          file("a.csv") + "'");
  ASSERT_EQ(r.code, 0) << r.err;
  // Two policies of two sizes by two rules, one policy by one; the names of the columns and a rule.
  const std::string table = r.out.substr(0, r.out.find("% of a row's steps"));
  EXPECT_EQ(std::count(table.begin(), table.end(), '\n'), 2 + 10) << r.out;
  EXPECT_NE(r.out.find("not among the 24 recorded at each position; record with more --nodes"),
            std::string::npos)
      << r.out;
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;  // what was left out, once
  EXPECT_NE(r.err.find("left out: "), std::string::npos) << r.err;
  const std::string csv = bytes_of(file("a.csv"));
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 10);
  EXPECT_NE(csv.find("\nchain,8,coupled,0.8,"), std::string::npos) << csv;
  // Once more: nothing is left to do. Killed within a text, or by other options.
  const std::string whole = bytes_of(file("a.rec"));
  const Result again = run(record());
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(bytes_of(file("a.rec")), whole);
  write_file(file("a.rec"), whole.substr(0, whole.size() - 100));
  EXPECT_EQ(run(record()).code, 0);
  EXPECT_EQ(bytes_of(file("a.rec")), whole);
  expect_error(record("--top-k 3 "), 2, "another request (target_params");
}

TEST_F(ReplayCommand, NamesPoliciesAsStudiesDoAndTreesThatAreTheSame) {
  ASSERT_EQ(run(record()).code, 0);
  const std::string replay = "replay '" + file("a.rec") + "' ";
  const Result usual = run(replay);
  EXPECT_NE(usual.out.find("dyspec-plain"), std::string::npos) << usual.out;
  EXPECT_EQ(usual.out.find("dyspec "), std::string::npos) << usual.out;
  EXPECT_EQ(usual.err, "");
  const Result learns = run(replay + "--policies dyspec --tree-sizes 4 --acceptance coupled");
  EXPECT_EQ(learns.code, 0);
  EXPECT_NE(learns.out.find("dyspec-plain"), std::string::npos) << learns.out;
  EXPECT_EQ(learns.err,
            "coppice: dyspec learns within a run, which does not replay: dyspec-plain is replayed "
            "in its place\n");
  const Result same = run(replay + "--policies specinfer,chain --tree-sizes 3 --widths 1,1,1");
  EXPECT_NE(same.out.find("identical trees: specinfer fixed, chain 3 (rejection)\n"),
            std::string::npos)
      << same.out;
  EXPECT_NE(same.out.find("(coupled)"), std::string::npos) << same.out;
  const Result other = run(replay + "--policies specinfer,chain --tree-sizes 4 --widths 2,1,1");
  EXPECT_EQ(other.out.find("identical trees"), std::string::npos) << other.out;
  const Result planned = run(replay + "--policies sequoia --tree-sizes 6");
  EXPECT_NE(planned.out.find("sequoia's trees (rejection) are planned for this recording's own"),
            std::string::npos)
      << planned.out;
  EXPECT_NE(planned.out.find("parted in 2"), std::string::npos) << planned.out;
  expect_error(replay + "--policies specinfer --widths 9", 2,
               "asks for 9 children of a node, and of each the recording holds the first 8; record "
               "with --entries 9");
}

TEST_F(ReplayCommand, WidthsMayRepeat) {
  ASSERT_EQ(run(record()).code, 0);
  const std::string replay = "replay '" + file("a.rec") + "' --policies specinfer --widths ";
  ASSERT_EQ(run(replay + "2,2 --csv '" + file("twice") + "'").code, 0);
  ASSERT_EQ(run(replay + "2 --csv '" + file("once") + "'").code, 0);
  // Draft passes a step and all else, bar the clock in the last column.
  const auto figures = [&](const char* name) {
    const std::string row = bytes_of(file(name)).substr(bytes_of(file(name)).find('\n') + 1);
    return row.substr(0, row.find('\n')).substr(0, row.substr(0, row.find('\n')).rfind(','));
  };
  EXPECT_NE(figures("twice"), figures("once"));
}

TEST_F(ReplayCommand, AnIncompleteRecordingIsToldOnce) {
  ASSERT_EQ(run(record()).code, 0);
  const std::string bytes = bytes_of(file("a.rec"));
  write_file(file("cut.rec"), bytes.substr(0, bytes.size() - 1));
  const Result r = run("replay '" + file("cut.rec") + "' --policies chain --tree-sizes 3");
  EXPECT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
  EXPECT_NE(r.err.find("holds 1 of 2 texts; it ends within a block"), std::string::npos) << r.err;
}

TEST_F(ReplayCommand, WrongRequestsAreOneLine) {
  ASSERT_EQ(run(record()).code, 0);
  const std::string replay = "replay '" + file("a.rec") + "' ";
  expect_error("replay", 2, "no recording is named");
  expect_error("replay '" + file("none") + "'", 1, "no such file");
  expect_error("replay '" + file("prompts.txt") + "'", 1,
               "it is no recording; name a file that coppice record wrote, or make one");
  expect_error(replay + "--policies dyspec,other", 2, "'other' is unknown");
  expect_error(replay + "--policies none", 2, "'none' is unknown");
  expect_error(replay + "--policies ,", 2, "--policies ',': an item is empty");
  expect_error(replay + "--tree-sizes 4,,5", 2, "--tree-sizes '4,,5': an item is empty");
  expect_error(replay + "--tree-sizes 0", 2, "--tree-sizes '0'");
  EXPECT_EQ(run(replay + "--tree-sizes 0").err.find("auto"), std::string::npos);
  expect_error(replay + "--tree-sizes auto --policies dyspec --acceptance coupled", 2,
               "costs, which are not recorded");
  expect_error(replay + "--tree-sizes 100000", 2, "from 1 to 2048");
  expect_error(replay + "--acceptance maybe", 2, "'maybe' is unknown");
  expect_error(replay + "--seeds 0", 2, "--seeds 0");
  expect_error(replay + "--policies static --acceptance coupled", 2, "policy static needs one");
  expect_error(replay + "--policies specinfer --widths 2,x", 2, "widths");
  expect_error(replay + "--policies chain --widths 2,2", 2, "--widths: it belongs to");
  expect_error(replay + "--tree '" + file("none") + "'", 2,
               "--tree: it belongs to policy static or sequoia");
  expect_error(replay + "--threshold 0.1", 2, "--threshold: it belongs to");
  expect_error(replay + "--policies sequoia --beam-width 2", 2, "--beam-width: it belongs to");
  expect_error(replay + "--tree-depth 2", 2,
               "--tree-depth: it belongs to policy sequoia or expand-rerank, which --policies does "
               "not name");
  // Refused in every combination: told once.
  expect_error(replay + "--policies expand-rerank --tree-sizes 3,8 --acceptance rejection", 2,
               "expand-rerank");
  // The recording stays, by whatever name it goes.
  const std::string before = bytes_of(file("a.rec"));
  expect_error(replay + "--csv '" + file("./a.rec") + "'", 2, "would replace what is read");
  EXPECT_EQ(bytes_of(file("a.rec")), before);
  // Before any work is done.
  expect_error(replay + "--policies chain --csv '" + file("none/a.csv") + "'", 1, "none/a.csv");
  expect_error(replay + "--policies chain --csv '" + file(".") + "'", 1, "Is a directory");
  expect_error("record --out x", 2, "--prompts is missing");
  expect_error("record --prompts '" + file("prompts.txt") + "'", 2, "--out is missing");
  expect_error("record --prompts '" + file("none") + "' --out '" + file("b") + "'", 1,
               "no such file");
  const std::string other = "record --prompts '" + file("prompts.txt") + "' --out '" + file("b");
  expect_error(other + "' --nodes 0", 2, "--nodes 0");
  expect_error(other + "' --entries 5000", 2, "entries 5000");
  expect_error(other + "' --limit -1", 2, "--limit -1: use 0 or more");
  expect_error(other + "' --device cpu", 2, "option '--device' is unknown");
  expect_error(other + "' --nodes many", 2, "--nodes 'many': use a whole number");
  expect_error(other + "/c'", 1, "b/c");
  expect_error(other + "' --max-new-tokens 1000000", 2, "prompts.txt' line 1");
  write_file(file("ids.jsonl"), "{\"tokens\": [1, 5]}\n{\"tokens\": [1, 99999999]}\n");
  expect_error("record --prompts '" + file("ids.jsonl") + "' --out '" + file("b") + "'", 2,
               "line 2: token 99999999");
  EXPECT_FALSE(std::filesystem::exists(file("b")));
  expect_error(other + "' --draft none --target '" + (stories() / "target").string() + "'", 2,
               "draft model");
}

}  // namespace
}  // namespace coppice::testing
