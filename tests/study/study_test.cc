// Whole studies of a tiny pair: what is counted, and that ends and new beginnings change nothing.
#include "study/study.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "engine/pair.h"
#include "study/files.h"
#include "study/grid.h"
#include "study/trace.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using coppice::testing::TemporaryFolder;
using coppice::testing::TinyModel;
using coppice::testing::TinyPair;

/// Table of a study without what depends on the clock.
std::string timeless(const Summary& summary) {
  const Table csv = summary_csv(summary);
  std::string text;
  for (const auto& row : csv.rows) {
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string& name = csv.columns[c].name;
      const bool timed = name.find("second") != name.npos || name.find("speedup") != name.npos ||
                         name.find("_us_") != name.npos || name.find("_share") != name.npos;
      if (!timed || name.starts_with("accepted_share")) text += row[c] + ";";
    }
    text += "\n";
  }
  return text;
}

TinyModel peaky() {
  TinyModel model;
  model.logit_scale = 2.0;
  return model;
}
TinyModel other_seed() {
  TinyModel model;
  model.seed = 9;
  return model;
}

class Study : public ::testing::Test {
 protected:
  Study() {
    request_.prompts_file = "made up";
    for (const TokenId token : {5, 9, 12, 31, 44, 50}) {
      request_.prompts.push_back({token < 20 ? "low" : "high", "", {1, token, 7}, token, {}});
    }
    request_.shared.max_new_tokens = 14;
    lists_.policies = {"dyspec", "chain", "specinfer"};
    lists_.tree_sizes = {4, 8};
    lists_.temperatures = {0.0, 0.8};
    lists_.seeds = {3, 4};
    request_.cells = make_grid(lists_, request_.shared).cells;
    request_.engine = pair_.options();
    request_.oracle_positions = 2;
    request_.oracle_sizes = {4};
  }
  fs::path out(const char* name = "study") const { return folder_.path() / name; }
  StudyOutcome run(const char* name = "study") { return conduct(request_, out(name), {}); }

  TemporaryFolder folder_;
  TinyPair pair_{peaky(), 0.2};
  GridLists lists_;
  StudyRequest request_;
};

TEST_F(Study, TracesWhatItCountsAlsoWhenItGoesOn) {
  lists_.policies = {"dyspec"};
  lists_.tree_sizes = {4};
  lists_.seeds = {3};
  request_.cells = make_grid(lists_, request_.shared).cells;
  request_.oracle_positions = 0;
  request_.trace = folder_.path() / "nodes.trace";
  int asked = 0;
  StudyHooks hooks;
  hooks.stop = [&] { return ++asked > 40; };  // somewhere in the middle
  ASSERT_FALSE(conduct(request_, out(), hooks).finished);
  const StudyOutcome outcome = run();
  ASSERT_TRUE(outcome.finished);

  const Trace trace = read_trace(request_.trace);
  EXPECT_FALSE(trace.torn);
  ASSERT_EQ(trace.header["runs"].size(), request_.cells.size());
  std::int64_t expected = 0, good = 0, traced_good = 0;
  for (const SummaryRow& row : outcome.summary.rows) {
    expected += row.steps + std::llround(row.tree_size * static_cast<double>(row.steps));
    good += std::llround(row.accepted_length.value * static_cast<double>(row.steps));
  }
  std::map<std::pair<std::uint32_t, std::uint32_t>, int> generations;
  for (const TraceNode& node : trace.nodes) {
    traced_good += node.fate == Fate::root || node.fate == Fate::accepted ? 1 : 0;
    ++generations[{node.run, node.prompt}];
  }
  EXPECT_EQ(static_cast<std::int64_t>(trace.nodes.size()), expected);
  EXPECT_EQ(traced_good, good);
  EXPECT_EQ(generations.size(), request_.cells.size() * request_.prompts.size());
  // Counts and trace see the same probabilities, but at temperature 0, where those of the trace
  // are all or nothing.
  for (const SummaryRow& row : outcome.summary.rows) {
    if (row.cell.plain()) continue;
    decltype(NodeCounts::joint) joint{};
    std::int64_t neither = 0;
    for (const TraceNode& node : trace.nodes) {
      const Cell& cell = request_.cells[node.run];
      if (node.fate == Fate::root || cell.row_key() != row.cell.row_key()) continue;
      const auto target_prob = static_cast<double>(node.target_prob);
      ++joint[probability_bin(static_cast<double>(node.draft_prob))][probability_bin(target_prob)];
      neither += target_prob > 0.0 && target_prob < 1.0 ? 1 : 0;
    }
    EXPECT_EQ(joint == row.nodes.joint, row.cell.temperature > 0.0) << row.cell.row_key();
    EXPECT_EQ(neither > 0, row.cell.temperature > 0.0) << row.cell.row_key();
  }

  request_.trace = folder_.path() / "late.trace";
  EXPECT_THROW(run(), Error);
}

TEST_F(Study, CountsWhatGenerateCounts) {
  const StudyOutcome outcome = run();
  ASSERT_TRUE(outcome.finished);
  Engine engine = Engine::load(request_.engine);
  const std::vector<PromptName> names = names_of(request_.prompts);
  ASSERT_EQ(outcome.summary.rows.size(), 2u * 7u);
  for (const SummaryRow& row : outcome.summary.rows) {
    double good = 0.0, steps = 0.0, trees = 0.0, passes = 0.0;
    for (const std::uint64_t seed : lists_.seeds) {
      for (std::size_t p = 0; p < request_.prompts.size(); ++p) {
        GenerateOptions options;
        options.policy = row.cell.policy;
        options.tree_size = row.cell.tree_size;
        options.temperature = row.cell.temperature;
        options.max_new_tokens = 14;
        options.seed = seed;
        options.stream = stream_of(names[p].id);
        const Statistics s = engine.generate(request_.prompts[p].tokens, options).statistics;
        const auto n = static_cast<double>(s.steps);
        good += s.accepted_length * n;
        steps += n;
        trees += s.tree_size_mean * n;
        passes += static_cast<double>(s.draft_passes);
      }
    }
    EXPECT_NEAR(row.accepted_length.value, good / steps, 1e-9) << row.cell.row_key();
    EXPECT_NEAR(row.tree_size, trees / steps, 1e-9) << row.cell.row_key();
    EXPECT_NEAR(row.draft_passes, passes / steps, 1e-9) << row.cell.row_key();
    EXPECT_LE(row.accepted_length.low, row.accepted_length.value);
    EXPECT_GE(row.accepted_length.high, row.accepted_length.value);
    EXPECT_EQ(row.prompts, 6);
    if (row.cell.plain()) {
      EXPECT_EQ(row.accepted_length.value, 1.0);
      EXPECT_EQ(row.speedup.value, 1.0);
    } else {
      EXPECT_GT(row.accepted_length.value, 1.0) << row.cell.row_key();
      EXPECT_GT(row.speedup.value, 0.0);
    }
  }
  // Two kinds, every row of each; together they are the whole.
  ASSERT_EQ(outcome.summary.kinds.size(), 2 * outcome.summary.rows.size());
  std::map<std::string, std::int64_t> steps;
  for (const SummaryRow& row : outcome.summary.kinds) steps[row.cell.row_key()] += row.steps;
  for (const SummaryRow& row : outcome.summary.rows) {
    EXPECT_EQ(steps[row.cell.row_key()], row.steps);
  }
}

TEST_F(Study, TheOracleIsWalkedAboveTemperatureZero) {
  const StudyOutcome outcome = run();
  ASSERT_EQ(outcome.summary.oracle.size(), 1u);
  const OracleRow& oracle = outcome.summary.oracle[0];
  EXPECT_EQ(oracle.temperature, 0.8);
  EXPECT_EQ(oracle.size, 4);
  EXPECT_EQ(oracle.prompts, 6);
  EXPECT_GT(oracle.accepted_length.value, 1.0);
  EXPECT_LT(oracle.accepted_length.value, 5.0);
}

// A tree of one node is worth the target's largest probability; the step ends with the second token
// of what is left where the first was foreseen, else with the first. The text's first token comes
// with the prompt.
TEST_F(Study, OracleTreesOfOneNode) {
  Engine engine = Engine::load(request_.engine);
  GenerateOptions options;
  options.policy = Policy::none;
  options.temperature = 0.8;
  options.max_new_tokens = 40;
  options.ignore_eos = true;
  options.logprobs = true;
  const std::vector<TokenId>& prompt = request_.prompts[0].tokens;
  const Generation text = engine.generate(prompt, options);
  double expected = 0.0;
  std::int32_t steps = 0;
  for (std::size_t at = 1; at < text.tokens.size(); ++steps) {
    const auto& [token, logprob] = text.logprobs[at].top[0];
    expected += 1.0 + std::exp(logprob);
    at += text.tokens[at] == token ? 2 : 1;
  }
  EXPECT_LT(steps, 40) << "no token was foreseen";
  const OracleWalk walk = walk_oracle(engine, prompt, text.tokens, options, 1, 1000);
  EXPECT_EQ(walk.positions, steps);
  // The processed distributions of two passes differ by rounding of f32.
  EXPECT_NEAR(walk.expected, expected, 1e-4 * expected);
  EXPECT_EQ(walk_oracle(engine, prompt, text.tokens, options, 1, 3).positions, 3);
  const OracleWalk more = walk_oracle(engine, prompt, text.tokens, options, 6, 1000);
  EXPECT_GT(more.expected / more.positions, walk.expected / walk.positions);
}

TEST_F(Study, KilledAtAnyPointItEndsWithTheSameTables) {
  const std::string whole = timeless(run().summary);
  const std::string results = testing::bytes_of(out() / "results.jsonl");
  const std::string settings = testing::bytes_of(out() / "study.json");
  const auto lines = std::count(results.begin(), results.end(), '\n');
  EXPECT_EQ(lines, 6 * (2 * 2 * 7 + 1));
  for (std::size_t part = 0; part <= 12; ++part) {
    // Odd offsets, so that some lie within a line and some at its end.
    const std::size_t bytes = std::min(results.size(), part * results.size() / 12 + part * 37);
    fs::remove_all(out());
    fs::create_directory(out());
    std::ofstream(out() / "study.json", std::ios::binary) << settings;
    std::ofstream(out() / "results.jsonl", std::ios::binary) << results.substr(0, bytes);
    const StudyOutcome again = run();
    EXPECT_EQ(again.continued, bytes > 0);
    ASSERT_EQ(timeless(again.summary), whole) << "cut at byte " << bytes;
    const std::string now = testing::bytes_of(out() / "results.jsonl");
    const std::size_t kept = results.substr(0, bytes).rfind('\n') + 1;
    EXPECT_EQ(now.substr(0, kept), results.substr(0, kept)) << "what is done is not done again";
    EXPECT_EQ(std::count(now.begin(), now.end(), '\n'), lines);
  }
}

TEST_F(Study, StoppedItGoesOn) {
  const std::string whole = timeless(run("whole").summary);
  int asked = 0;
  for (int round = 0; round < 200; ++round) {
    StudyHooks hooks;
    asked = 0;
    hooks.stop = [&] { return ++asked > 600; };  // somewhere within a generation
    const StudyOutcome outcome = conduct(request_, out(), hooks);
    if (!outcome.finished) {
      EXPECT_TRUE(outcome.summary.rows.empty());
      EXPECT_FALSE(fs::exists(out() / "summary.csv"));
      continue;
    }
    EXPECT_GT(round, 0) << "it was never stopped";
    EXPECT_EQ(timeless(outcome.summary), whole);
    return;
  }
  FAIL() << "it never ended";
}

TEST_F(Study, JobsChangeTimesOnly) {
  if (request_.engine.device == "cuda") GTEST_SKIP() << "a GPU runs one job";
  const std::string one = timeless(run("one").summary);
  request_.jobs = 3;
  EXPECT_EQ(timeless(run("three").summary), one);
}

TEST_F(Study, AnErrorOfAWorkerEndsTheStudyAndKeepsResults) {
  request_.engine.kv_tokens = 16;  // holds the short prompts, not the long one
  request_.prompts.back().tokens.assign(15, 8);
  request_.jobs = 2;
  request_.oracle_positions = 0;
  const StudyOutcome outcome = run();
  EXPECT_TRUE(outcome.finished) << "a full memory ends a text, no study";
  request_.prompts.back().tokens.assign(17, 8);
  try {
    run("other");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("line 50"), std::string::npos) << error.what();
  }
}

TEST_F(Study, OtherModelsAreRefused) {
  run();
  const TinyPair other(other_seed(), 0.2);
  request_.engine.draft = other.options().draft;
  try {
    run();
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("draft: it was"), std::string::npos) << error.what();
  }
}

TEST_F(Study, WritesItsFiles) {
  run();
  const std::string csv = testing::bytes_of(out() / "summary.csv");
  EXPECT_EQ(csv.rfind("policy,tree_size,", 0), 0u);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 3 * 14 + 1);
  const std::string page = testing::bytes_of(out() / "report.html");
  for (const char* foreign : {"<link", "src=", "@import", "url(http"}) {
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
  }
  for (const char* figure :
       {"accepted_length", "speedup", "time", "acceptance_by_draft_probability",
        "target_by_draft_probability", "calibration", "acceptance_by_place", "calibration_by_place",
        "steps_dyspec_8", "steps_chain_8", "accepted_lengths", "acceptance_by_depth",
        "paired_length", "paired_speed"}) {
    for (const char* group : {"_t0_rejection", "_t0.8_rejection"}) {
      const fs::path file = out() / "figures" / (std::string(figure) + group + ".svg");
      const std::string svg = testing::bytes_of(file);
      EXPECT_NE(svg.find("<svg"), std::string::npos) << file;
      EXPECT_EQ(svg.find("nan"), std::string::npos) << file;
    }
  }
  EXPECT_LT(page.rfind("<svg"), page.find("<details>")) << "long tables come after all figures";
  for (const char* table :
       {"results", "speedups", "pairs", "agreement", "steps", "lengths", "depths", "kinds"}) {
    for (const char* form : {".csv", ".md", ".tex"}) {
      const fs::path file = fs::path("tables") / (std::string(table) + form);
      EXPECT_TRUE(fs::file_size(out() / file) > 60) << file;
      EXPECT_NE(page.find("href=\"" + file.string()), std::string::npos) << file;
    }
  }
  EXPECT_NE(page.find("that must repeat plain decoding"), std::string::npos);
  EXPECT_NE(
      testing::bytes_of(out() / "figures" / "accepted_length_t0.8_rejection.svg").find("oracle"),
      std::string::npos);
}

}  // namespace
}  // namespace coppice::study
