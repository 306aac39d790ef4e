// `coppice study` as a shell sees it.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <iterator>
#include <set>
#include <sstream>
#include <string>

#include "cli/command_runs.h"
#include "engine/pair.h"
#include "reference/files.h"
#include "study/grid/study_file.h"

namespace coppice::testing {
namespace {

namespace fs = std::filesystem;

class StudyCommand : public Cli {
 protected:
  StudyCommand() {
    std::ofstream prompts(folder_.path() / "prompts.jsonl");
    for (int p = 0; p < 6; ++p) {
      prompts << "{\"kind\": \"" << (p % 2 == 0 ? "even" : "odd") << "\", \"tokens\": [1, " << 5 + p
              << ", 9]}\n";
    }
  }
  std::string path(const char* name) const { return folder(name); }
  std::string common() const {
    return " study --device cpu --threads 1 --target '" + (pair_.path() / "target").string() +
           "' --draft '" + (pair_.path() / "draft").string() + "' --prompts '" +
           path("prompts.jsonl") + "' ";
  }
  TinyPair pair_;
};

const std::string grid =
    "--policies dyspec,chain --tree-sizes 4 --temperatures 0,0.7 --max-new-tokens 12 ";

TEST_F(StudyCommand, PrintsTablesAndWritesAReport) {
  const Result r = run(common() + grid + "--limit 4 --out '" + path("out") + "'");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err, "");
  for (const char* said :
       {"accepted length [95%]", "speed-up [95%]", "plain", "dyspec", "chain",
        "an end token included", ", 4 prompts, 24 texts, ", "; at most 12 new tokens",
        "Spec-Bench: mean over texts", "coppice: 0.", ", commit ", "\nCPU: ", "\ndate: 20",
        "Sequoia was not run: no setting of it was asked for"}) {
    EXPECT_NE(r.out.find(said), std::string::npos) << said;
  }
  // The verdict comes last, before the report's place.
  const std::size_t verdict = r.out.find("\n\nTemperature 0: nothing is separable on 4 prompts");
  ASSERT_NE(verdict, std::string::npos) << r.out;
  const std::size_t second = r.out.find("\nTemperature 0.7, rejection: ", verdict);
  EXPECT_NE(second, std::string::npos);
  EXPECT_EQ(r.out.find('\n', second + 1), r.out.find("\n\n" + path("out") + "/report.html\n"));
  EXPECT_TRUE(fs::exists(path("out") + "/report.html"));
  // Once more: nothing is run again.
  const std::string results = testing::bytes_of(path("out") + "/results.jsonl");
  const Result again = run(common() + grid + "--limit 4 --out '" + path("out") + "'");
  EXPECT_EQ(again.out, r.out);
  EXPECT_EQ(testing::bytes_of(path("out") + "/results.jsonl"), results);
  expect_error(common() + grid + "--limit 4 --top-k 3 --top-p 0.5 --out '" + path("out") + "'", 2,
               "(top_k: it was 0, now 3; top_p: it was 1.0, now 0.5)");
}

// What is looked up needs no draft; beside one it does. Tables name and count it.
TEST_F(StudyCommand, LookupAloneNeedsNoDraft) {
  const std::string without = " study --device cpu --threads 1 --target '" +
                              (pair_.path() / "target").string() + "' --draft none --prompts '" +
                              path("prompts.jsonl") + "' --tree-sizes 4 --max-new-tokens 24 ";
  const Result r = run(without + "--policies lookup --out '" + path("out") + "'");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.out.find("\nlookup"), std::string::npos) << r.out;
  const std::string steps = testing::bytes_of(path("out") + "/tables/steps.csv");
  EXPECT_NE(steps.find("looked up"), std::string::npos) << steps;
  EXPECT_NE(steps.find(" of "), std::string::npos) << steps;
  const std::string csv = testing::bytes_of(path("out") + "/summary.csv");
  EXPECT_NE(csv.find(",looked_up_per_step,looked_up_accepted_per_step,"), std::string::npos) << csv;
  expect_error(without + "--policies lookup,dyspec+lookup --out '" + path("b") + "'", 2,
               "study needs a draft model; give --draft MODEL, or --policies none,lookup");
}

// Somebody's pipe or link under a name that a study writes: no wait, nothing written elsewhere.
TEST_F(StudyCommand, WhatIsNotItsOwnIsRefused) {
  const std::string out = path("out");
  const std::string command =
      common() + "--policies chain --tree-sizes 2 --max-new-tokens 2 --limit 1 --out '" + out + "'";
  ASSERT_EQ(run(command).code, 0);
  const auto expect_refused = [&](const std::string& name) {
    const Result r = run(command, "timeout 20 env ");
    EXPECT_EQ(r.code, 1) << name << r.err;
    EXPECT_EQ(std::count(r.err.begin(), r.err.end(), '\n'), 1) << r.err;
    EXPECT_NE(r.err.find(name), std::string::npos) << r.err;
  };
  for (const char* name : {"study.json", "prompts.jsonl", "results.jsonl", "summary.csv",
                           "tables/results.csv", "report.html"}) {
    const fs::path file = fs::path(out) / name, kept = path("kept");
    fs::rename(file, kept);
    ASSERT_EQ(mkfifo(file.c_str(), 0600), 0);
    expect_refused(name);
    fs::remove(file);
    if (std::string(name) != "study.json") {
      fs::create_symlink(kept, file);
      const std::string before = testing::bytes_of(kept);
      expect_refused(name);
      EXPECT_EQ(testing::bytes_of(kept), before) << name;
      fs::remove(file);
    }
    fs::rename(kept, file);
  }
  fs::rename(out + "/figures", path("elsewhere"));
  fs::create_directory_symlink(path("elsewhere"), out + "/figures");
  expect_refused("figures: is a symbolic link");
  fs::remove(out + "/figures");
  EXPECT_EQ(run(command).code, 0);
}

TEST_F(StudyCommand, ItsReportSaysWhatWasLeftOut) {
  const Result r = run(common() +
                       "--policies dyspec-plain,chain --tree-sizes auto,4 --max-new-tokens 4 "
                       "--limit 1 --out '" +
                       path("out") + "'");
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string note = "left out: dyspec-plain of automatic size: ";
  EXPECT_NE(r.err.find(note), std::string::npos) << r.err;
  EXPECT_NE(testing::bytes_of(path("out") + "/report.html").find(note), std::string::npos);
  EXPECT_NE(testing::bytes_of(path("out") + "/study.json").find(note), std::string::npos);
}

TEST_F(StudyCommand, PromptsWithoutAKindAreNamedSo) {
  const auto study = [&](const char* prompts, const char* name) {
    std::ofstream(path("prompts.jsonl")) << prompts;
    const Result r =
        run(common() + "--policies none --max-new-tokens 4 --out '" + path(name) + "'");
    EXPECT_EQ(r.code, 0) << r.err;
  };
  study("{\"kind\": \"tales\", \"tokens\": [1, 5]}\n{\"tokens\": [1, 6]}\n", "some");
  const std::string summary = testing::bytes_of(path("some") + "/summary.csv");
  for (const char* kind : {",all,", ",tales,", ",no kind given,"}) {
    EXPECT_NE(summary.find(kind), std::string::npos) << kind << "\n" << summary;
  }
  EXPECT_NE(testing::bytes_of(path("some") + "/report.html").find("no kind given"),
            std::string::npos);
  study("{\"kind\": \"tales\", \"tokens\": [1, 6]}\n", "other");
  expect_error(
      "study merge '" + path("merged") + "' '" + path("some") + "' '" + path("other") + "'", 2,
      "it was no kind given, now 'tales'");
}

TEST_F(StudyCommand, ComparesMergesAndFormats) {
  const auto study = [&](const char* name, const std::string& tail) {
    const Result r = run(common() + grid + tail + "--out '" + path(name) + "'");
    EXPECT_EQ(r.code, 0) << r.err;
    return r.out;
  };
  EXPECT_NE(study("a", "--rounds 2 ").find("All 30 texts that must repeat"), std::string::npos);
  const std::string csv = study("b", "--seeds 0,1 --format csv ");
  EXPECT_EQ(csv.rfind("# results\npolicy,", 0), 0u) << csv;
  const std::string folders = "'" + path("a") + "' '" + path("b") + "'";
  const Result both = run(" study compare " + folders);
  ASSERT_EQ(both.code, 0) << both.err;
  EXPECT_NE(both.out.find("paired on 6 common prompts"), std::string::npos) << both.out;
  EXPECT_NE(run(" study compare --format latex " + folders).out.find("tabular"), std::string::npos);
  const Result merged = run(" study merge '" + path("new") + "' " + folders);
  ASSERT_EQ(merged.code, 0) << merged.err;
  EXPECT_NE(merged.err.find("24 results stand in several studies"), std::string::npos)
      << merged.err;
  EXPECT_NE(merged.out.find("results are missing"), std::string::npos) << "seed 1 ran one round";
  // A policy that comes later is timed in another run than plain decoding was.
  EXPECT_EQ(csv.find('*'), std::string::npos);
  const Result later = run(common() +
                           "--policies chain,dyspec --tree-sizes 4,6 --temperatures 0 "
                           "--max-new-tokens 12 --out '" +
                           path("a") + "'");
  ASSERT_EQ(later.code, 0) << later.err;
  EXPECT_NE(later.out.find("A star marks speeds of 12 of 30 texts"), std::string::npos)
      << later.out;
  std::istringstream lines(later.out.substr(0, later.out.find("\nPer step")));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string policy, tree;
    words >> policy >> tree;
    if (policy == "chain" || policy == "dyspec") {
      EXPECT_EQ(line.ends_with(" *"), tree == "6") << line;
    }
  }
  expect_error(" study merge '" + path("new") + "' " + folders, 2, "holds a study already");
}

// Whatever wraps --help's lines breaks none of its words: they are those of the manual page, whose
// lines are not wrapped.
TEST_F(StudyCommand, HelpBreaksNoWord) {
  for (const std::string command : {"study", "record", "replay", "audit", "advise", "plan"}) {
    std::string page = run(" man " + command).out;
    std::erase(page, '\\');
    std::istringstream unwrapped(page);
    using Words = std::istream_iterator<std::string>;
    const std::set<std::string> known(Words{unwrapped}, Words{});
    const std::string help = run(" " + command + " --help").out;
    std::istringstream lines(help.substr(help.find(":\n  --")));
    for (std::string line; std::getline(lines, line);) {
      std::istringstream words(line.starts_with(' ') ? line : "");
      for (std::string word; words >> word;) {
        const bool plain = word.find_first_not_of("abcdefghijklmnopqrstuvwxyz-,") == word.npos;
        if (!plain || word.starts_with('-') || word.size() < 6) continue;
        EXPECT_TRUE(known.contains(word)) << command << " --help: " << word;
      }
    }
  }
}

TEST_F(StudyCommand, AutomaticSizesAndTreesOfFiles) {
  std::ofstream(path("shape.json")) << R"({"paths": [[0], [1], [0, 0]]})";
  const Result r =
      run(common() + "--policies dyspec,static,expand-rerank --tree-sizes auto,6 --tree '" +
          path("shape.json") +
          "' --temperatures 0,0.7 --acceptance rejection,coupled --seeds 1,2 "
          "--max-new-tokens 6 --limit 2 --out '" +
          path("out") + "'");
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_NE(r.err.find("left out: expand-rerank at temperature 0.7, rejection"), std::string::npos);
  EXPECT_NE(r.err.find("left out: coupled acceptance at temperature 0"), std::string::npos);
  EXPECT_NE(r.out.find("static            3 "), std::string::npos) << "sizes of trees are numbers";
  EXPECT_TRUE(fs::exists(path("out") + "/costs.json"));
}

TEST_F(StudyCommand, PlainValues) {
  const std::string tail =
      common() +
      "--policies dyspec,dyspec-plain,dyspec-threshold-plain --tree-sizes 6,auto "
      "--temperatures 0,0.7 --max-new-tokens 6 --limit 2 --out '" +
      path("out") + "'";
  const Result r = run(tail);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(r.err,
            "coppice: left out: dyspec-plain of automatic size: plain-values: automatic sizes "
            "of policy dyspec need learned acceptance; give a tree-size, or leave it out\n");
  // Policy, tree and temperature of the first table's rows.
  std::vector<std::string> rows;
  std::istringstream table(r.out.substr(0, r.out.find("\nPer step")));
  for (std::string line; std::getline(table, line);) {
    std::istringstream words(line);
    std::string policy, tree, temperature;
    words >> policy >> tree >> temperature;
    if (policy.starts_with("dyspec")) rows.push_back(policy + " " + tree + " " + temperature);
  }
  std::vector<std::string> expected;
  for (const char* temperature : {" 0", " 0.7"}) {
    for (const char* cell : {"dyspec 6", "dyspec auto", "dyspec-plain 6",
                             "dyspec-threshold-plain 6", "dyspec-threshold-plain auto"}) {
      expected.push_back(cell + std::string(temperature));
    }
  }
  EXPECT_EQ(rows, expected) << r.out;
}

TEST_F(StudyCommand, UsageErrors) {
  const std::string out = "--out '" + path("out") + "' ";
  expect_error(" study", 2, "--out DIR");
  expect_error(" study " + out, 2, "--prompts FILE");
  expect_error(common(), 2, "--out DIR");
  expect_error(common() + out + "--policies dance", 2, "--policies 'dance' is unknown");
  expect_error(common() + out + "--policies dance", 2, "dyspec-threshold-plain, chain");
  expect_error(common() + out + "--policies chain-plain", 2, "is unknown");
  expect_error(common() + out + "--policies dyspec-plain", 2, "give a tree-size");
  expect_error(common() + out + "--tree-sizes 4,x", 2, "--tree-sizes 'x'");
  expect_error(common() + out + "--tree-sizes 5000", 2, "from 1 to 2048, or auto");
  expect_error(common() + out + "--tree-sizes 4,,5", 2, "an item is empty");
  expect_error(common() + out + "--temperatures warm", 2, "--temperatures 'warm'");
  expect_error(common() + out + "--temperatures nan", 2, "temperature");
  expect_error(common() + out + "--acceptance maybe", 2, "--acceptance 'maybe'");
  expect_error(common() + out + "--seeds -1", 2, "--seeds '-1'");
  expect_error(common() + out + "--limit -1", 2, "--limit -1");
  expect_error(common() + out + "--progress nan", 2, "--progress nan: use seconds");
  expect_error(common() + out + "--rounds 0", 2, "--rounds 0");
  expect_error(common() + out + "--format word", 2, "--format 'word'");
  expect_error(" study compare a", 2, "name two studies");
  expect_error(" study compare a b", 1, "no study");
  expect_error(" study merge", 2, "name a new one");
  expect_error(common() + out + "--max-new-tokens 0", 2, "--max-new-tokens 0");
  expect_error(common() + out + "--draft-temperature -1", 2, "--draft-temperature -1");
  expect_error(common() + out + "--widths 2", 2, "--widths: it belongs to policy specinfer");
  expect_error(common() + out + "--policies expand-rerank --temperatures 1", 2, "would bias");
  expect_error(common() + out + "--policies static --tree '" + path("nowhere") + "'", 1, "nowhere");
  expect_error(common() + out + "stray", 2, "");
  std::ofstream(path("bad.jsonl")) << "{\"tokens\": [1, 2]}\n{\"tokens\": [1, 96]}\n";
  const std::string bad = " --target '" + (pair_.path() / "target").string() + "' --draft '" +
                          (pair_.path() / "draft").string() + "' --prompts '" + path("bad.jsonl") +
                          "' ";
  expect_error(" study" + bad + out, 2, "bad.jsonl' line 2: token 96 is outside");
  expect_error(" study --draft none" + bad.substr(0, bad.find("--draft")) + "--prompts '" +
                   path("prompts.jsonl") + "' --out '" + path("other") + "'",
               2, "a draft model");
  expect_error(common() + "--out '" + path("prompts.jsonl") + "'", 1, "prompts.jsonl");
  expect_error(common() + "--out '" + folder_.path().string() + "'", 2, "and no study");
}

TEST_F(StudyCommand, ASecondRunIsRefused) {
  study::StudyFolder held(path("out"));
  expect_error(common() + "--out '" + path("out") + "'", 2, "another run is working in it");
}

TEST_F(StudyCommand, KilledOrInterruptedItGoesOn) {
  const std::string tail = common() + grid + "--seeds 1,2,3,4,5,6,7,8 --out '" + path("out") + "'";
  const std::string results = path("out") + "/results.jsonl";
  std::size_t before = 0;
  for (const int signal : {SIGKILL, SIGINT, SIGKILL}) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      const std::string command =
          "exec '" + std::string(COPPICE_BINARY) + "'" + tail + " >/dev/null 2>&1";
      execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
      _exit(98);
    }
    // Once it has got on a bit.
    for (int i = 0; i < 3000 && testing::bytes_of(results).size() < before + 3000; ++i)
      usleep(10000);
    kill(child, signal);
    int status = 0;
    waitpid(child, &status, 0);
    if (signal == SIGINT) {
      ASSERT_TRUE(WIFEXITED(status));
      EXPECT_EQ(WEXITSTATUS(status), 130);
    }
    const std::string now = testing::bytes_of(results);
    EXPECT_GE(now.size(), before);
    before = now.size();
  }
  const std::string kept = testing::bytes_of(results);
  const Result r = run(tail);
  ASSERT_EQ(r.code, 0) << r.err;
  const std::string whole = testing::bytes_of(results);
  EXPECT_EQ(whole.substr(0, kept.rfind('\n') + 1), kept.substr(0, kept.rfind('\n') + 1));
  EXPECT_EQ(std::count(whole.begin(), whole.end(), '\n'), 6 * 8 * 2 * 3);
}

TEST_F(StudyCommand, AFullDiskIsAnErrorAndNoLoss) {
  const std::string tail = common() + grid + "--out '" + path("out") + "'";
  // Blocks of 512 or 1024 bytes.
  const Result full = run(tail, "ulimit -f 12; ");
  EXPECT_EQ(full.code, 1) << full.err;
  EXPECT_NE(full.err.find("results.jsonl: "), std::string::npos) << full.err;
  EXPECT_NE(full.err.find("free some space"), std::string::npos) << full.err;
  EXPECT_EQ(full.out, "");
  const std::string kept = testing::bytes_of(path("out") + "/results.jsonl");
  EXPECT_GT(kept.size(), 1000u);
  EXPECT_EQ(kept.back(), '\n');
  const Result r = run(tail);
  ASSERT_EQ(r.code, 0) << r.err;
  EXPECT_EQ(testing::bytes_of(path("out") + "/results.jsonl").substr(0, kept.size()), kept);
}

}  // namespace
}  // namespace coppice::testing
