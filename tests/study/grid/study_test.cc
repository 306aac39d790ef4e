// Whole studies of a tiny pair: what is counted, and that ends and new beginnings change nothing.
#include "study/study.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "base/checked_lines.h"
#include "base/error.h"
#include "engine/pair.h"
#include "reference/files.h"
#include "study/grid/grid.h"
#include "study/grid/runner.h"
#include "study/grid/study_file.h"
#include "study/grid/trace.h"
#include "study/peaky_model.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using coppice::testing::peaky;
using coppice::testing::TemporaryFolder;
using coppice::testing::TinyModel;
using coppice::testing::TinyPair;

/// Table of a study without what depends on the clock; perhaps without plain decoding, of which a
/// merged study keeps that of each run.
std::string timeless(const Summary& summary, bool with_plain = true) {
  const Table csv = summary_csv(summary);
  std::string text;
  for (const auto& row : csv.rows) {
    if (!with_plain && row[0] == "none") continue;
    for (std::size_t c = 0; c < row.size(); ++c) {
      const std::string& name = csv.columns[c].name;
      const bool timed = name.find("second") != name.npos || name.find("speedup") != name.npos ||
                         name.find("_us_") != name.npos || name.find("_share") != name.npos ||
                         name == "texts_of_other_runs" || name == "run";
      if (!timed || name.starts_with("accepted_share")) text += row[c] + ";";
    }
    text += "\n";
  }
  return text;
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
      request_.prompts.push_back({token < 20 ? "low" : "high", {}, {1, token, 7}, token});
    }
    request_.shared.max_new_tokens = 14;
    lists_.policies = {"dyspec", "chain", "specinfer"};
    lists_.tree_sizes = {4, 8};
    lists_.temperatures = {0.0, 0.8};
    lists_.seeds = {3, 4};
    request_.cells = make_grid(lists_, request_.shared).cells;
    request_.engine = pair_.options();
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
  request_.trace = folder_.path() / "nodes.trace";
  int asked = 0;
  StudyHooks hooks;
  hooks.stop = [&] { return ++asked > 40; };  // somewhere in the middle
  ASSERT_FALSE(conduct(request_, out(), hooks).finished);
  const StudyOutcome outcome = run();
  ASSERT_TRUE(outcome.finished);

  std::int64_t expected = 0, good = 0, traced = 0, traced_good = 0;
  for (const SummaryRow& row : outcome.summary.rows) {
    expected += row.steps + std::llround(row.tree_size * static_cast<double>(row.steps));
    good += std::llround(row.accepted_length.value * static_cast<double>(row.steps));
  }
  std::set<std::pair<std::string, std::string>> texts;
  std::map<std::string, std::map<std::size_t, std::int64_t>>
      judged;  // by cell and draft probability
  std::map<std::string, std::int64_t> neither;
  std::istringstream file(testing::bytes_of(request_.trace));
  for (std::string line; std::getline(file, line);) {
    const auto json = nlohmann::json::parse(line);
    const std::string cell = json["cell"];
    EXPECT_TRUE(texts.emplace(cell, json["prompt"]).second) << "a text stands there twice";
    const auto& nodes = json["nodes"];
    for (std::size_t i = 0; i < nodes["fate"].size(); ++i, ++traced) {
      const auto fate = nodes["fate"][i].get<Fate>();
      traced_good += fate == Fate::root || fate == Fate::accepted ? 1 : 0;
      if (fate == Fate::root) continue;
      const auto target_prob = nodes["target_prob"][i].get<double>();
      const auto draft_prob = nodes["draft_prob"][i].get<float>();
      if (fate != Fate::not_reached) {
        ++judged[cell][probability_bin(static_cast<double>(draft_prob))];
      }
      neither[cell] += target_prob > 0.0 && target_prob < 1.0 ? 1 : 0;
    }
  }
  EXPECT_EQ(traced, expected);
  EXPECT_EQ(traced_good, good);
  EXPECT_EQ(texts.size(), request_.cells.size() * request_.prompts.size());
  // Counts and trace see the same tokens; at temperature 0 the target's probabilities are all or
  // nothing.
  for (const SummaryRow& row : outcome.summary.rows) {
    if (row.cell.plain()) continue;
    const std::string key = row.cell.key();
    for (const auto& [bin, e] : row.nodes.by_draft_prob) {
      EXPECT_EQ(judged[key][bin], e.examined) << key << " bin " << bin;
    }
    EXPECT_EQ(neither[key] > 0, row.cell.temperature > 0.0) << key;
  }

  request_.trace = folder_.path() / "late.trace";
  EXPECT_THROW(run(), Error);
}

TEST_F(Study, CountsWhatGenerateCounts) {
  const StudyOutcome outcome = run();
  ASSERT_TRUE(outcome.finished);
  EngineOptions load = request_.engine;
  load.prefix_cache = false;  // as a study's
  Engine engine = Engine::load(load);
  const std::vector<PromptName> names = names_of(request_.prompts);
  ASSERT_EQ(outcome.summary.rows.size(), 2u * 7u);
  for (const SummaryRow& row : outcome.summary.rows) {
    double good = 0.0, steps = 0.0, trees = 0.0, passes = 0.0;
    for (const std::uint64_t seed : lists_.seeds) {
      for (std::size_t p = 0; p < request_.prompts.size(); ++p) {
        GenerateOptions options;
        options.speculation = speculation_of(row.cell);
        options.sampling.temperature = row.cell.temperature;
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

TEST_F(Study, KilledAtAnyPointItEndsWithTheSameTables) {
  lists_.policies = {"dyspec", "chain"};
  lists_.seeds = {3};
  request_.cells = make_grid(lists_, request_.shared).cells;
  const std::string whole = timeless(run().summary);
  const std::string results = testing::bytes_of(out() / "results.jsonl");
  const std::string settings = testing::bytes_of(out() / "study.json");
  const auto lines = std::count(results.begin(), results.end(), '\n');
  EXPECT_EQ(lines, 6 * 2 * 5);
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

TEST_F(Study, AFullMemoryEndsATextAndALongPromptTheStudy) {
  request_.engine.kv_tokens = 16;  // holds the short prompts, not the long one
  request_.prompts.back().tokens.assign(15, 8);
  const StudyOutcome outcome = run();
  EXPECT_TRUE(outcome.finished);
  EXPECT_GT(outcome.cut_short, 0);
  request_.prompts.back().tokens.assign(17, 8);
  EXPECT_NE(testing::error_of([&] { run("other"); }, ErrorKind::usage).find("line 50"),
            std::string::npos);
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

/// Lines of the results of a study.
std::vector<std::string> lines_of(const fs::path& folder) {
  std::vector<std::string> lines;
  std::istringstream text(testing::bytes_of(folder / results_name));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

TEST_F(Study, IsExtendedByAnythingThatChangesNoResult) {
  const auto ask = [&](std::vector<std::string> policies, std::vector<std::int32_t> sizes,
                       std::vector<std::uint64_t> seeds) {
    lists_.policies = std::move(policies);
    lists_.tree_sizes = std::move(sizes);
    lists_.seeds = std::move(seeds);
    request_.cells = make_grid(lists_, request_.shared).cells;
  };
  const std::vector<StudyPrompt> all = request_.prompts;
  request_.prompts = {all[1], all[4]};
  ask({"dyspec"}, {4}, {3});
  run();
  const std::vector<std::string> before = lines_of(out());
  // More prompts, before and between those that were there; policies, sizes, seeds, rounds.
  request_.prompts = all;
  request_.rounds = 2;
  ask({"chain", "dyspec"}, {8, 4}, {4, 3});
  const StudyOutcome grown = run();
  const std::vector<std::string> after = lines_of(out());
  ASSERT_GT(after.size(), before.size());
  EXPECT_TRUE(std::equal(before.begin(), before.end(), after.begin())) << "nothing is run again";
  EXPECT_EQ(grown.missing, 0);
  EXPECT_EQ(grown.others, 0);
  EXPECT_EQ(after.size(), 6u * (2 * 2 * 2 * 5));
  // The same study begun anew.
  EXPECT_EQ(timeless(run("anew").summary), timeless(grown.summary));
  // And what it was before: the rest stays, and is not counted.
  request_.prompts = {all[1], all[4]};
  request_.rounds = 1;
  ask({"dyspec"}, {4}, {3});
  const StudyOutcome less = run();
  EXPECT_EQ(lines_of(out()), after);
  EXPECT_EQ(less.prompts, 2);
  EXPECT_EQ(less.others, static_cast<std::int64_t>(after.size() - before.size()));
}

TEST_F(Study, RoundsRepeatTextsInAnotherOrder) {
  lists_.acceptances = {Acceptance::rejection, Acceptance::coupled};
  lists_.policies = {"dyspec", "chain"};
  lists_.tree_sizes = {4};
  lists_.seeds = {3};
  request_.cells = make_grid(lists_, request_.shared).cells;
  request_.rounds = 3;
  const StudyOutcome outcome = run();
  const Results results(out() / results_name, outcome.file.plan);
  const std::size_t cells = request_.cells.size(), prompts = request_.prompts.size();
  ASSERT_EQ(results.results().size(), 3 * cells * prompts);
  // Round by round and in each prompt by prompt; the order of cells is another each time.
  std::set<std::vector<std::string>> orders;
  for (std::size_t i = 0; i < results.results().size(); i += cells) {
    std::vector<std::string> order;
    for (std::size_t c = 0; c < cells; ++c) {
      const Result& result = results.results()[i + c];
      EXPECT_EQ(static_cast<std::size_t>(result.round), i / cells / prompts);
      EXPECT_EQ(result.prompt, outcome.file.plan.prompts[i / cells % prompts].id);
      order.push_back(result.cell);
    }
    orders.insert(std::move(order));
  }
  EXPECT_EQ(orders.size(), 3 * prompts);
  for (const SummaryRow& row : outcome.summary.rows) {
    EXPECT_EQ(row.runs, 3 * 6);
    // By round, from the results themselves.
    std::array<double, 3> tokens{}, seconds{};
    for (const Result& result : results.results()) {
      if (!result.cell.starts_with(row.cell.row_key() + " seed=")) continue;
      tokens.at(static_cast<std::size_t>(result.round)) += static_cast<double>(result.decoded());
      seconds.at(static_cast<std::size_t>(result.round)) += result.seconds.decode();
    }
    double mean_pace = 0.0;
    for (std::size_t r = 0; r < 3; ++r) mean_pace += tokens[r] / seconds[r] / 3.0;
    const Estimate& pace = row.rounds_tokens_per_second;
    EXPECT_EQ(pace.n, 3);
    EXPECT_NEAR(pace.value, mean_pace, 1e-9 * mean_pace);
    EXPECT_TRUE(pace.low <= pace.value && pace.value <= pace.high);
    std::int64_t steps = 0, good = 0;
    for (std::size_t length = 0; length < row.lengths.size(); ++length) {
      steps += row.lengths[length];
      good += static_cast<std::int64_t>(length) * row.lengths[length];
    }
    EXPECT_EQ(steps, row.steps);
    EXPECT_NEAR(static_cast<double>(good) / static_cast<double>(steps), row.accepted_length.value,
                1e-12);
  }
  // A speed-up with prefill, from the results themselves.
  const SummaryRow& row = outcome.summary.rows[1];
  std::map<std::string, std::array<double, 4>> sums;  // tokens and seconds, plain's likewise
  for (const Result& result : results.results()) {
    const bool own = result.cell.starts_with(row.cell.row_key() + " seed=");
    if (!own && !result.cell.starts_with(row.cell.plain_row_key() + " seed=")) continue;
    auto& of = sums[result.prompt];
    of[own ? 0 : 2] += static_cast<double>(result.tokens());
    of[own ? 1 : 3] += result.seconds.prefill + result.seconds.decode();
  }
  std::array<double, 4> total{};
  for (const auto& [prompt, of] : sums) {
    for (std::size_t i = 0; i < 4; ++i) total[i] += of[i];
  }
  EXPECT_NEAR(row.speedup_with_prefill.value, total[0] / total[1] / (total[2] / total[3]), 1e-9);
  // Temperature 0, and coupled at 0.8: every text but the one that they are compared with.
  ASSERT_EQ(outcome.summary.agreements.size(), 2u);
  const std::int64_t rows = 3, rounds = 3, references = 6;
  EXPECT_EQ(outcome.summary.agreements[0].texts, 6 * rows * rounds - references);
  EXPECT_EQ(outcome.summary.agreements[1].texts, 6 * rows * rounds - references);
  for (const Agreement& one : outcome.summary.agreements) EXPECT_TRUE(one.divergences.empty());
  // The two settings under each of three temperatures and rules.
  EXPECT_EQ(outcome.summary.comparisons.size(), 3u);
}

TEST_F(Study, TextsThatDepartAreFoundAndNamed) {
  lists_.acceptances = {Acceptance::coupled};
  request_.cells = make_grid(lists_, request_.shared).cells;
  const StudyOutcome outcome = run();
  // One token of one coupled text, with a new checksum.
  std::string lines, changed;
  for (const StoredLine& line : read_results(out() / results_name)) {
    auto json = nlohmann::ordered_json::parse(line.text);
    const auto cell = json["cell"].get<std::string>();
    if (changed.empty() && cell.starts_with("chain") && cell.find("coupled") != cell.npos) {
      auto& token = json["turns"][0]["tokens"][5];
      token = (token.get<int>() + 1) % 90;
      changed = cell + json["prompt"].get<std::string>();
    }
    lines += with_checksum(json.dump()) + "\n";
  }
  write_file(out() / results_name, lines);
  const std::vector<Agreement> found =
      agreements_of(outcome.file.plan.cells, Results(out() / results_name, outcome.file.plan));
  ASSERT_EQ(found.size(), 2u);
  EXPECT_TRUE(found[0].divergences.empty());
  ASSERT_EQ(found[1].divergences.size(), 1u);
  const Divergence& one = found[1].divergences[0];
  EXPECT_EQ(one.cell + one.prompt, changed);
  EXPECT_EQ(one.position, 5);
  EXPECT_EQ(one.turn, 0);
  EXPECT_EQ(one.found, (one.expected + 1) % 90);
}

// Each turn follows the answers before it.
TEST_F(Study, TurnsFollowAnswers) {
  Engine engine = Engine::load(request_.engine);
  Cell cell;
  cell.policy = Policy::dyspec;
  cell.tree_size = 6;
  cell.temperature = 0.8;
  const std::vector<std::vector<TokenId>> turns = {{1, 5, 7}, {9, 11}, {13}};
  GenerateOptions options = cell.request(request_.shared);
  options.stream = 77;
  const auto result = run_cell(engine, options, turns, {});
  ASSERT_TRUE(result);
  ASSERT_EQ(result->turns.size(), 3u);
  Sequence sequence = engine.new_sequence();
  std::int64_t steps = 0;
  for (std::size_t t = 0; t < turns.size(); ++t) {
    const Generation text = sequence.generate(turns[t], options);
    EXPECT_EQ(result->turns[t].tokens, text.tokens);
    EXPECT_EQ(result->turns[t].prompt_tokens, text.statistics.prompt_tokens);
    EXPECT_EQ(result->turns[t].finish_reason, name_of(text.finish_reason));
    steps += text.statistics.steps;
  }
  EXPECT_EQ(result->steps(), steps);
  EXPECT_EQ(result->turns[1].prompt_tokens,
            static_cast<std::int32_t>(3 + result->turns[0].tokens.size() + 2));
}

// What is merged is counted on the prompts that all settings have, and says where its times and
// trees come from.
TEST_F(Study, MergedStudiesNameTwoRuns) {
  lists_.tree_sizes = {4};
  lists_.temperatures = {0.8};
  const std::vector<StudyPrompt> all = request_.prompts;
  lists_.policies = {"dyspec"};
  request_.cells = make_grid(lists_, request_.shared).cells;
  request_.prompts.assign(all.begin(), all.begin() + 4);
  const StudyOutcome first = run("a");
  EXPECT_EQ(first.summary.rows[1].other_runs, 0);
  lists_.policies = {"sequoia"};
  request_.cells = make_grid(lists_, request_.shared).cells;
  request_.prompts.assign(all.begin() + 2, all.begin() + 6);
  ASSERT_EQ(run("b").file.notes.size(), 1u);
  const MergeOutcome merged = merge_studies({out("a"), out("b")}, out("merged"));
  ASSERT_EQ(merged.study.prompts, 2);
  EXPECT_EQ(merged.study.file.notes.size(), 1u) << "of the second study";
  const auto& rows = merged.study.summary.rows;
  ASSERT_EQ(rows.size(), 4u);
  EXPECT_EQ(rows[0].run, "1");
  EXPECT_EQ(rows[1].run, "2") << "plain decoding is kept of each";
  EXPECT_NE(rows[2].run, rows[3].run);
  for (const SummaryRow& row : rows) {
    EXPECT_EQ(row.other_runs, 0) << "each has plain decoding of its own run";
    EXPECT_EQ(row.prompts, 2);
  }
  // By hand, from the lines of the file.
  std::map<std::pair<std::string, std::string>, std::pair<double, double>> sums;
  for (const StoredLine& line : read_results(out("merged") / results_name)) {
    const auto json = nlohmann::json::parse(line.text);
    const std::string prompt = json["prompt"];
    const auto ids = names_of({all.begin() + 2, all.begin() + 4});
    if (std::ranges::find(ids, prompt, &PromptName::id) == ids.end()) continue;
    const std::string cell = json["cell"];
    auto& [tokens, seconds] = sums[{json["run"], cell.substr(0, cell.find(' '))}];
    for (const auto& turn : json["turns"]) {
      tokens += static_cast<double>(turn["tokens"].size()) - turn["prefill_tokens"].get<double>();
    }
    for (const auto& [name, part] : json["seconds"].items()) {
      if (name != "prefill") seconds += part.get<double>();
    }
  }
  ASSERT_EQ(sums.size(), 4u);
  for (std::size_t row : {2u, 3u}) {
    for (const auto& [named, sum] : sums) {
      if (named.second != rows[row].cell.name()) continue;
      const auto& plain = sums.at({named.first, "none"});
      const double speedup = sum.first / sum.second / (plain.first / plain.second);
      EXPECT_NEAR(rows[row].speedup.value, speedup, 1e-9 * speedup);
    }
  }
  const std::string words = runs_sentence(merged.study.summary);
  EXPECT_NE(words.find("run 1 began 20"), std::string::npos) << words;
  // Two runs' speed-ups are compared, not their speeds.
  const Comparison& pair = merged.study.summary.comparisons.at(0);
  EXPECT_NEAR(pair.speed.estimate.value, rows[2].speedup.value / rows[3].speedup.value, 1e-9);
  EXPECT_TRUE(compares_runs(rows[2], rows[3]));
  EXPECT_FALSE(compares_runs(rows[0], rows[2])) << "with plain decoding of its own run";
  const Table pairs = comparison_table(merged.study.summary);
  EXPECT_TRUE(pairs.rows.at(0).at(8).ends_with("*")) << pairs.rows[0][8];
  const std::string page = testing::bytes_of(out("merged") / "report.html");
  EXPECT_NE(page.find("Settings are of several runs"), std::string::npos);
}

/// Writes a copy of a study as a machine would have made it that was `slower` so many times.
void copy_slowed(const fs::path& from, const fs::path& to, double slower) {
  fs::copy(from, to, fs::copy_options::recursive);
  std::ofstream file(to / results_name, std::ios::trunc);
  for (const StoredLine& line : read_results(from / results_name)) {
    auto json = nlohmann::ordered_json::parse(line.text);
    for (auto& [name, part] : json["seconds"].items()) part = slower * part.get<double>();
    json["run"] = "2000-01-01T00:00:00Z 1";
    file << with_checksum(json.dump()) << "\n";
  }
}

// The same build under two loads: speeds differ, speed-ups do not, and nothing is called different.
TEST_F(Study, AMachineThatIsSlowerThroughoutChangesNoSpeedup) {
  lists_.seeds = {3};
  request_.cells = make_grid(lists_, request_.shared).cells;
  const StudyOutcome fast = run("fast");
  copy_slowed(out("fast"), out("slow"), 3.3);
  const StudyComparison both = compare_studies(read_study(out("fast")), read_study(out("slow")));
  std::size_t speculative = 0;
  for (const ComparedRow& row : both.rows) {
    EXPECT_NEAR(row.first_speed.value / row.second_speed.value, 3.3, 1e-6);
    EXPECT_NEAR(row.first_speedup.value, row.second_speedup.value, 1e-9);
    if (row.cell.plain()) continue;
    ++speculative;
    EXPECT_NEAR(row.comparison.speed.estimate.value, 1.0, 1e-9);
    EXPECT_NEAR(row.comparison.speed.estimate.low, 1.0, 1e-9);
    EXPECT_EQ(row.comparison.speed.estimate.n, 6);
    EXPECT_GT(row.comparison.speed.p_holm, 0.5) << row.cell.row_key();
  }
  EXPECT_EQ(speculative, 2u * 6u);
  // Merged, the slow one's plain decoding has rows of its own; the rest stood in both.
  const MergeOutcome merged = merge_studies({out("fast"), out("slow")}, out("merged"));
  EXPECT_EQ(merged.twice, 6 * 2 * 6);
  for (const SummaryRow& row : merged.study.summary.rows) {
    if (row.cell.plain()) continue;
    const auto same = std::ranges::find(fast.summary.rows, row.cell.row_key(),
                                        [](const SummaryRow& one) { return one.cell.row_key(); });
    EXPECT_NEAR(row.speedup.value, same->speedup.value, 1e-9);
    EXPECT_EQ(row.other_runs, 0);
  }
}

// Trees go on behind end tokens; what is told of them does not.
TEST_F(Study, CountsNothingBehindAnEndToken) {
  const std::vector<TokenId> start = {1, 5, 7};
  TinyModel model = peaky();
  model.eos_tokens = {};
  GenerateOptions greedy;
  greedy.max_new_tokens = 12;
  const TinyPair endless(model, 0.0);
  const std::vector<TokenId> text = Engine::load(endless.options()).generate(start, greedy).tokens;
  model.eos_tokens = {text[6]};
  const TinyPair ending(model, 0.0);
  Engine engine = Engine::load(ending.options());
  greedy.max_new_tokens = 40;
  greedy.speculation = Chain{12};
  TracedText trace;
  const auto result = run_cell(engine, greedy, {start}, {}, &trace);
  ASSERT_TRUE(result);
  const Turn& turn = result->turns.at(0);
  ASSERT_EQ(turn.finish_reason, "eos");
  EXPECT_EQ(result->kept_tokens(),
            static_cast<std::int64_t>(turn.tokens.size()) - turn.prefill_tokens + 1);
  EXPECT_EQ(result->kept_tokens(), result->decoded() + 1);
  const auto accepted = std::ranges::count(trace.nodes.fate, Fate::accepted);
  EXPECT_EQ(accepted, result->accepted_drafts());
  EXPECT_EQ(result->nodes.total().accepted, result->accepted_drafts());
}

TEST_F(Study, ComparesAndMergesStudies) {
  lists_.tree_sizes = {4};
  const std::vector<StudyPrompt> all = request_.prompts;
  const auto study = [&](const char* name, std::vector<std::string> policies, std::size_t from,
                         std::size_t to) {
    lists_.policies = std::move(policies);
    request_.cells = make_grid(lists_, request_.shared).cells;
    request_.prompts.assign(all.begin() + static_cast<std::ptrdiff_t>(from),
                            all.begin() + static_cast<std::ptrdiff_t>(to));
    run(name);
  };
  study("a", {"dyspec", "chain"}, 0, 5);
  study("b", {"chain", "specinfer"}, 0, 6);
  std::reverse(request_.prompts.begin(), request_.prompts.end());
  run("b");  // prompts are paired by what they say
  const StudyComparison both = compare_studies(read_study(out("a")), read_study(out("b")));
  EXPECT_EQ(both.prompts, 5);
  ASSERT_EQ(both.rows.size(), 4u) << "plain and a chain at two temperatures";
  for (const ComparedRow& row : both.rows) {
    if (!row.cell.plain()) {
      EXPECT_EQ(row.comparison.accepted_length.estimate.value, 0.0) << row.cell.row_key();
      EXPECT_EQ(row.comparison.accepted_length.p, 1.0);
    }
    EXPECT_EQ(row.first_length.value, row.second_length.value);
    if (row.cell.plain()) continue;
    EXPECT_GT(row.comparison.speed.estimate.value, 0.0);
    EXPECT_EQ(row.comparison.speed.estimate.n, 5);
  }
  EXPECT_EQ(both.only_first.size(), 2u);
  EXPECT_EQ(both.only_second.size(), 2u);
  EXPECT_EQ(both.texts, 5 * 2 * 2) << "temperature 0: plain and a chain, two seeds";
  EXPECT_TRUE(both.divergences.empty());
  EXPECT_TRUE(both.differences.empty());

  study("c", {"dyspec"}, 5, 6);
  const MergeOutcome merged = merge_studies({out("a"), out("b"), out("c")}, out("merged"));
  EXPECT_EQ(merged.twice, 5 * 4) << "a chain on five prompts; plain decoding is kept of each";
  EXPECT_EQ(merged.study.prompts, 6) << "of the last one every study has a part";
  EXPECT_EQ(merged.study.missing, 0);
  EXPECT_TRUE(fs::exists(out("merged") / "report.html"));
  // Studying goes on there.
  lists_.policies = {"dyspec", "chain", "specinfer"};
  request_.cells = make_grid(lists_, request_.shared).cells;
  request_.prompts = all;
  EXPECT_EQ(timeless(run("merged").summary, false), timeless(run("whole").summary, false));

  request_.shared.max_new_tokens = 9;
  study("short", {"chain"}, 0, 2);
  const auto error = [&](const std::vector<fs::path>& studies, const char* into) {
    return testing::error_of([&] { merge_studies(studies, out(into)); }, ErrorKind::usage);
  };
  EXPECT_NE(error({out("a"), out("short")}, "new").find("max_new_tokens: it was 14, now 9"),
            std::string::npos);
  EXPECT_FALSE(fs::exists(out("new")));
  EXPECT_FALSE(fs::exists(out("new.part")));
  EXPECT_NE(error({out("a"), out("c")}, "b").find("holds a study already"), std::string::npos);
  EXPECT_NE(error({out("a")}, "new").find("fewer than two"), std::string::npos);
  const StudyComparison shorter = compare_studies(read_study(out("a")), read_study(out("short")));
  EXPECT_EQ(shorter.differences, std::vector<std::string>{"max_new_tokens: 14 and 9"});
  EXPECT_EQ(shorter.texts, 0) << "they need not be the same";
  EXPECT_NE(testing::error_of([&] { compare_studies(read_study(out("a")), read_study(out("c"))); },
                              ErrorKind::usage)
                .find("no finished prompt in common"),
            std::string::npos);
}

// Killed anywhere, it leaves nothing that stands against the same command.
TEST_F(Study, AMergeThatWasKilledIsMadeAgain) {
  lists_.policies = {"chain"};
  lists_.tree_sizes = {4};
  lists_.temperatures = {0.0};
  for (const char* name : {"a", "b"}) {
    lists_.seeds = {name[0] == 'a' ? 1u : 2u};
    request_.cells = make_grid(lists_, request_.shared).cells;
    run(name);
  }
  const std::vector<fs::path> both = {out("a"), out("b")};
  const fs::path part = folder_.path() / "merged.part";
  for (const bool settings : {false, true}) {
    fs::remove_all(out("merged"));
    fs::create_directories(part / "figures");
    std::ofstream(part / "merging") << "";
    std::ofstream(part / "results.jsonl") << "{\"half a li";
    std::ofstream(part / "prompts.jsonl") << "";
    if (settings) std::ofstream(part / "study.json") << "{}";
    const MergeOutcome merged = merge_studies(both, out("merged") / "");
    EXPECT_EQ(merged.study.missing, 0);
    EXPECT_FALSE(fs::exists(part));
    EXPECT_EQ(read_study(out("merged")).results.results().size(), 24u);
    EXPECT_TRUE(fs::exists(out("merged") / "report.html"));
    EXPECT_FALSE(fs::exists(out("merged") / "merging"));
  }
  // What is no merge's is left alone: a study of that name, run or merged, or something else.
  const auto refused = [&] {
    return testing::error_of([&] { merge_studies(both, out("merged")); }, ErrorKind::usage);
  };
  fs::rename(out("merged"), out("other"));
  for (const char* study : {"a", "other"}) {
    fs::copy(out(study), part, fs::copy_options::recursive);
    const std::string results = testing::bytes_of(part / "results.jsonl");
    EXPECT_NE(refused().find("which no merge left there; move it away"), std::string::npos);
    EXPECT_EQ(testing::bytes_of(part / "results.jsonl"), results);
    fs::remove_all(part);
  }
  fs::create_directories(part);
  std::ofstream(part / "letter.txt") << "dear";
  EXPECT_NE(testing::error_of([&] { merge_studies(both, out("merged")); }, ErrorKind::usage)
                .find("letter.txt"),
            std::string::npos);
  EXPECT_EQ(testing::bytes_of(part / "letter.txt"), "dear");
  fs::remove_all(part);
  // Another one at work keeps its folder.
  const StudyFolder held(part, true);
  std::ofstream(part / "results.jsonl") << "mine";
  fs::remove_all(out("merged"));
  EXPECT_NE(testing::error_of([&] { merge_studies(both, out("merged")); }, ErrorKind::usage)
                .find("another run"),
            std::string::npos);
  EXPECT_EQ(testing::bytes_of(part / "results.jsonl"), "mine");
}

// A trace has every text of its study from the first on, and no other study's.
TEST_F(Study, ATraceWithHolesOrOfAnotherStudyIsRefused) {
  lists_.policies = {"chain"};
  lists_.tree_sizes = {4};
  lists_.seeds = {3};
  request_.cells = make_grid(lists_, request_.shared).cells;
  request_.trace = folder_.path() / "a.trace";
  run("a");
  const std::string whole = testing::bytes_of(request_.trace);
  const auto refusal = [&](const char* name) {
    return testing::error_of([&] { run(name); }, ErrorKind::usage);
  };
  EXPECT_EQ(refusal("a"), "") << "its own";
  // One text less, anywhere.
  const auto second = whole.find('\n') + 1, third = whole.find('\n', second) + 1;
  const std::string holed = whole.substr(0, second) + whole.substr(third);
  write_file(request_.trace, holed);
  EXPECT_NE(refusal("a").find("it lacks a text"), std::string::npos);
  EXPECT_EQ(testing::bytes_of(request_.trace), holed) << "it is left as it was";
  write_file(request_.trace, "");
  EXPECT_NE(refusal("a").find("it lacks a text"), std::string::npos);
  // The same settings and prompts, but another study's: begun, and new.
  write_file(request_.trace, whole);
  request_.trace = folder_.path() / "b.trace";
  run("b");
  request_.trace = folder_.path() / "a.trace";
  EXPECT_NE(refusal("b").find("it lacks a text"), std::string::npos);
  EXPECT_NE(refusal("c").find("of another study"), std::string::npos);
  EXPECT_EQ(testing::bytes_of(request_.trace), whole);
  // A study that began without one.
  request_.trace.clear();
  run("d");
  request_.trace = folder_.path() / "d.trace";
  EXPECT_NE(refusal("d").find("a trace begins with its study"), std::string::npos);
  EXPECT_FALSE(fs::exists(request_.trace));
}

TEST_F(Study, SaysWhereAndWhenItWasMade) {
  request_.command = "coppice study --out 'my study'";
  const StudyOutcome outcome = run();
  const StudyFile file = study_file_from(testing::bytes_of(out() / study_name), "study.json");
  ASSERT_EQ(file.runs.size(), 1u);
  const Provenance& made = file.runs[0];
  EXPECT_EQ(made.date.size(), std::string("2026-01-02T03:04:05Z").size());
  EXPECT_EQ(made.version, version());
  EXPECT_EQ(made.command, request_.command);
  EXPECT_EQ(made.device, outcome.device);
  EXPECT_EQ(made.dtype, outcome.dtype);
  EXPECT_GE(made.threads, 1);
  for (const std::string& text : {made.build, made.cpu, made.instruction_set}) EXPECT_NE(text, "");
  std::map<std::string, std::string> facts;
  for (const auto& [name, value] : facts_of(file)) facts[name] = value;
  EXPECT_EQ(facts["command"], request_.command);
  EXPECT_EQ(facts["date"], made.date);
  EXPECT_NE(facts["CPU"].find(made.cpu), std::string::npos);
  EXPECT_NE(testing::bytes_of(out() / "report.html").find(made.date), std::string::npos);
  run();
  EXPECT_EQ(study_file_from(testing::bytes_of(out() / study_name), "").runs, file.runs)
      << "a start that runs nothing is no run";
}

TEST_F(Study, ATraceNeverTakesTheStudysOwnFiles) {
  run();
  const std::string results = testing::bytes_of(out() / results_name);
  fs::create_symlink(out() / results_name, folder_.path() / "link");
  for (const fs::path& trace : {out() / results_name, out() / "lock", out() / "run.trace",
                                out() / "figures/../study.json", folder_.path() / "link"}) {
    request_.trace = trace;
    const std::string error = testing::error_of([&] { run(); }, ErrorKind::usage);
    EXPECT_NE(error.find("own files"), std::string::npos) << trace << error;
  }
  EXPECT_EQ(testing::bytes_of(out() / results_name), results);
  EXPECT_FALSE(fs::exists(out() / "run.trace"));
}

TEST_F(Study, WritesItsFiles) {
  const StudyOutcome outcome = run();
  for (const char* choice : {"device", "cpu_dtype", "kv_dtype"}) {
    EXPECT_TRUE(outcome.file.fixed.at(choice).is_string()) << choice << " by name, not by number";
  }
  const std::string csv = testing::bytes_of(out() / "summary.csv");
  EXPECT_EQ(csv.rfind("policy,tree_size,", 0), 0u);
  EXPECT_EQ(std::count(csv.begin(), csv.end(), '\n'), 1 + 3 * 14);
  const std::string page = testing::bytes_of(out() / "report.html");
  for (const char* foreign : {"<link", "src=", "@import", "url(http"}) {
    EXPECT_EQ(page.find(foreign), std::string::npos) << foreign;
  }
  for (const char* figure :
       {"accepted_length", "speedup", "accepted_lengths", "acceptance_by_draft_probability",
        "acceptance_by_place", "calibration_of_growth"}) {
    for (const char* group : {"_t0_rejection", "_t0.8_rejection"}) {
      const fs::path file = out() / "figures" / (std::string(figure) + group + ".svg");
      const std::string svg = testing::bytes_of(file);
      EXPECT_NE(svg.find("<svg"), std::string::npos) << file;
      EXPECT_EQ(svg.find("nan"), std::string::npos) << file;
    }
  }
  EXPECT_LT(page.rfind("<svg"), page.find("<details>")) << "long tables come after all figures";
  for (const char* table : {"results", "speedups", "pairs", "agreement", "steps", "kinds"}) {
    for (const char* form : {".csv", ".tex"}) {
      const fs::path file = fs::path("tables") / (std::string(table) + form);
      EXPECT_TRUE(fs::file_size(out() / file) > 60) << file;
      EXPECT_NE(page.find("href=\"" + file.string()), std::string::npos) << file;
    }
  }
  EXPECT_NE(page.find("that must repeat plain decoding"), std::string::npos);
}

}  // namespace
}  // namespace coppice::study
