// Acceptance by rank: measured, kept in files, refused for what it does not belong to.
#include "study/acceptance/acceptance.h"

#include <gtest/gtest.h>
#include <sys/wait.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>

#include "engine/pair.h"
#include "engine/tree_plan.h"
#include "reference/files.h"
#include "study/grid/grid.h"
#include "study/study.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using coppice::testing::bytes_of;
using coppice::testing::error_of;
using coppice::testing::TemporaryFolder;
using coppice::testing::TinyModel;
using coppice::testing::TinyPair;

TinyModel peaked() {
  TinyModel model;
  model.logit_scale = 3.0;
  model.eos_tokens = {};
  return model;
}

AcceptanceRequest request_of(double temperature) {
  AcceptanceRequest request;
  request.prompts = {{1, 4, 2, 5}, {1, 7, 9}, {1, 8}};
  request.sampling.sampling.temperature = temperature;
  request.sampling.seed = 5;
  request.ranks = 8;
  request.new_tokens = 60;
  return request;
}

MeasuredPair measured(Engine& engine, const std::vector<double>& temperatures) {
  MeasuredPair pair = describe_pair(engine);
  for (const double temperature : temperatures) {
    pair.settings.push_back(*measure_acceptance(engine, request_of(temperature)));
  }
  return pair;
}

class AcceptanceVector : public ::testing::Test {
 protected:
  fs::path file(const char* name = "pair.json") const { return folder_.path() / name; }
  TinyPair pair_{peaked(), 0.25};
  TemporaryFolder folder_;
};

// A better draft has its first children accepted more often; with the target as draft always.
TEST_F(AcceptanceVector, FollowsTheDraft) {
  const TinyPair same(peaked(), 0.0), useless(peaked(), 1.0);
  const auto first_of = [](const TinyPair& pair) {
    Engine engine = Engine::load(pair.options());
    const auto setting = measure_acceptance(engine, request_of(0.8));
    EXPECT_LE(
        std::accumulate(setting->acceptance_vector.begin(), setting->acceptance_vector.end(), 0.0),
        1.0 + 1e-9);
    EXPECT_GT(setting->judged.front(), 50);
    EXPECT_LE(setting->acceptance_vector.size(), 8u);
    return setting->acceptance_vector.front();
  };
  const double certain = first_of(same), good = first_of(pair_), bad = first_of(useless);
  EXPECT_GT(certain, 0.999);
  EXPECT_GT(good, bad + 0.1);
}

TEST_F(AcceptanceVector, StopsWhenAsked) {
  Engine engine = Engine::load(pair_.options());
  AcceptanceRequest request = request_of(0.8);
  int asked = 0;
  request.stop = [&] { return ++asked > 3; };
  EXPECT_FALSE(measure_acceptance(engine, request).has_value());
  EXPECT_LE(asked, 5);
}

TEST_F(AcceptanceVector, AFileIsReadBackAndKnowsWhatItBelongsTo) {
  Engine engine = Engine::load(pair_.options());
  MeasuredPair pair = measured(engine, {0.0, 0.6});
  pair.prompt_prints = {print_of({"", {"one text"}, {}, 1}), print_of({"", {}, {1, 2}, 2})};
  write_measured_pair(file(), pair);
  const MeasuredPair read = read_measured_pair(file());
  ASSERT_EQ(read.settings.size(), 2u);
  EXPECT_EQ(read.settings[1].acceptance_vector, pair.settings[1].acceptance_vector);
  EXPECT_EQ(read.target.fingerprint, pair.target.fingerprint);

  GenerateOptions options;
  options.sampling.temperature = 0.6;
  EXPECT_EQ(&setting_for(file(), read, options), &read.settings[1]);
  const auto refusal = [&](auto change) {
    GenerateOptions other = options;
    change(other);
    return error_of([&] { setting_for(file(), read, other); }, ErrorKind::usage);
  };
  EXPECT_NE(
      refusal([](auto& o) { o.sampling.temperature = 0.7; }).find("temperature 0.7, rejection"),
      std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.acceptance = Acceptance::coupled; }).find("coupled"),
            std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.sampling.top_k = 5; }).find("top-k 5"), std::string::npos);
  EXPECT_NE(refusal([](auto& o) { o.draft_temperature = 1.0; }).find("draft temperature 1"),
            std::string::npos);
  options.sampling.temperature = 0.0;
  options.acceptance = Acceptance::coupled;  // no difference there
  EXPECT_EQ(&setting_for(file(), read, options), &read.settings[0]);

  EXPECT_NO_THROW(require_pair(file(), read, pair_.options()));
  const TinyPair other(peaked(), 0.5);
  EXPECT_NE(error_of([&] { require_pair(file(), read, other.options()); }, ErrorKind::usage)
                .find("the draft"),
            std::string::npos);
  EXPECT_NO_THROW(require_other_prompts(file(), read, {{"", {"another"}, {}, 1}}));
  const std::vector<StudyPrompt> prompts = {{"", {"another"}, {}, 1}, {"", {}, {1, 2}, 7}};
  EXPECT_NE(error_of([&] { require_other_prompts(file(), read, prompts); }, ErrorKind::usage)
                .find("1 of the 2 prompts that are studied"),
            std::string::npos);
}

TEST_F(AcceptanceVector, DamagedFilesAreOneLine) {
  Engine engine = Engine::load(pair_.options());
  write_measured_pair(file(), measured(engine, {0.6}));
  const std::string whole = bytes_of(file());
  const auto refusal = [&](const std::string& text) {
    std::ofstream(file("bad.json"), std::ios::binary) << text;
    return error_of([&] { read_measured_pair(file("bad.json")); });
  };
  EXPECT_EQ(refusal(whole), "");
  for (std::size_t length = 0; length + 2 < whole.size(); length += 1 + whole.size() / 61) {
    EXPECT_NE(refusal(whole.substr(0, length)).find("bad.json"), std::string::npos) << length;
  }
  const auto changed = [&](auto change) {
    nlohmann::json json = nlohmann::json::parse(whole);
    change(json);
    return refusal(json.dump());
  };
  EXPECT_NE(changed([](auto& j) { j.erase("draft"); }).find("draft"), std::string::npos);
  EXPECT_NE(changed([](auto& j) { j["format_version"] = 9; }).find("version 9"), std::string::npos);
  EXPECT_NE(changed([](auto& j) { j["format"] = "x"; }).find("no file of"), std::string::npos);
  EXPECT_NE(changed([](auto& j) {
              j["settings"][0]["acceptance_vector"][0] = 0.01;
            }).find("not what its counts make"),
            std::string::npos);
  EXPECT_NE(changed([](auto& j) { j["settings"][0]["judged"][0] = 1; }).find("settings[0]"),
            std::string::npos);
  EXPECT_NE(changed([](auto& j) { j["settings"][0]["temperature"] = "hot"; }).find("temperature"),
            std::string::npos);
  EXPECT_NE(changed([](auto& j) { j["settings"] = nlohmann::json::array(); }).find("no settings"),
            std::string::npos);
  EXPECT_NE(error_of([&] { read_measured_pair(file("none.json")); }).find("coppice plan"),
            std::string::npos);
}

TEST_F(AcceptanceVector, PlansTheTree) {
  SequoiaTrees trees;
  const auto height = [&](std::vector<double> acceptance) {
    return plan_trees(Sequoia{6, 0, std::move(acceptance)}, 64, trees).map.shape.height();
  };
  EXPECT_EQ(height({0.9}), 6);
  EXPECT_LT(height({0.2, 0.2, 0.2, 0.2}), 4);
  Engine engine = Engine::load(pair_.options());
  const auto generated = [&](const Speculation& speculation) {
    GenerateOptions options;
    options.speculation = speculation;
    options.max_new_tokens = 8;
    return engine.generate(std::vector<TokenId>{1, 4, 2}, options).used.planned_for;
  };
  EXPECT_EQ(generated(Sequoia{6, 0, {0.2, 0.2}}), "the acceptance vector given");
  EXPECT_NE(generated(Sequoia{6}).find("shipped pair"), std::string::npos);
  EXPECT_NE(generated(SequoiaTree{{{0}, {1}}}).find("its grow map's"), std::string::npos);
  const auto refusal = [&](std::vector<double> acceptance) {
    return error_of([&] { generated(Sequoia{6, 0, std::move(acceptance)}); }, ErrorKind::usage);
  };
  EXPECT_NE(refusal({0.7, 0.4}).find("sums to 1.1"), std::string::npos);
  EXPECT_NE(refusal({0.0}).find("no tree pays"), std::string::npos);
}

// A study plans sequoia's trees for its own pair, keeps what it measured, and goes on with it.
TEST_F(AcceptanceVector, StudiesMeasureTheirOwnPair) {
  StudyRequest request;
  request.prompts_file = "made up";
  for (const TokenId token : {5, 9}) request.prompts.push_back({"", {}, {1, token, 7}, token});
  request.shared.max_new_tokens = 12;
  GridLists lists;
  lists.policies = {"sequoia", "chain"};
  lists.tree_sizes = {6};
  lists.temperatures = {0.0, 0.8};
  request.cells = make_grid(lists, request.shared).cells;
  request.engine = pair_.options();
  const fs::path out = folder_.path() / "study";
  const StudyOutcome outcome = conduct(request, out, {});
  ASSERT_TRUE(outcome.finished);
  ASSERT_EQ(outcome.file.notes.size(), 2u);
  EXPECT_NE(outcome.file.notes[0].find("this pair's acceptance"), std::string::npos);
  const std::string kept = bytes_of(out / "acceptance.json");
  EXPECT_EQ(read_measured_pair(out / "acceptance.json").settings.size(), 2u);
  EXPECT_EQ(conduct(request, out, {}).file.notes, outcome.file.notes);
  EXPECT_EQ(bytes_of(out / "acceptance.json"), kept);

  // The same out of a file, which another study may use if its prompts are others.
  MeasuredPair pair = read_measured_pair(out / "acceptance.json");
  write_measured_pair(file(), pair);
  request.acceptance_file = file();
  const StudyOutcome again = conduct(request, folder_.path() / "again", {});
  EXPECT_EQ(again.file.notes.size(), 2u);
  EXPECT_FALSE(fs::exists(folder_.path() / "again" / "acceptance.json"));
  EXPECT_NE(
      error_of([&] { conduct(request, out, {}); }, ErrorKind::usage).find("acceptance_vector"),
      std::string::npos);
  // Where no draft token was accepted there is nothing to plan for, and that is said.
  const MeasuredPair good = pair;
  std::ranges::fill(pair.settings[0].accepted, 0);
  std::ranges::fill(pair.settings[0].acceptance_vector, 0.0);
  write_measured_pair(file(), pair);
  const StudyOutcome unplanned = conduct(request, folder_.path() / "unplanned", {});
  ASSERT_EQ(unplanned.file.notes.size(), 2u);
  EXPECT_NE(unplanned.file.notes[0].find("sequoia at temperature 0, greedy: could not be planned"),
            std::string::npos)
      << unplanned.file.notes[0];
  EXPECT_NE(bytes_of(folder_.path() / "unplanned" / "report.html").find("could not be planned"),
            std::string::npos);
  pair = good;
  pair.prompt_prints = {print_of(request.prompts[1])};
  write_measured_pair(file(), pair);
  EXPECT_NE(error_of([&] { conduct(request, folder_.path() / "third", {}); }, ErrorKind::usage)
                .find("that are studied"),
            std::string::npos);
}

// Prompts of the study's file that are not studied are like those that are; texts that the target
// writes flatter a draft less or more.
TEST_F(AcceptanceVector, StudiesMeasureOnPromptsThatAreLeftOut) {
  std::vector<StudyPrompt> all;
  for (TokenId token = 2; token < 22; ++token) all.push_back({"", {}, {1, token, 7}, token});
  StudyRequest request;
  request.prompts_file = "made up";
  request.prompts = {all.begin(), all.begin() + 4};
  request.spare = left_out(all, request.prompts);
  ASSERT_EQ(request.spare.size(), 16u);
  request.shared.max_new_tokens = 8;
  GridLists lists;
  lists.policies = {"sequoia"};
  lists.tree_sizes = {4};
  request.cells = make_grid(lists, request.shared).cells;
  request.engine = pair_.options();
  const fs::path out = folder_.path() / "enough";
  const StudyOutcome outcome = conduct(request, out, {});
  ASSERT_EQ(outcome.file.notes.size(), 1u);
  EXPECT_NE(outcome.file.notes[0].find("on 16 prompts of made up;"), std::string::npos)
      << outcome.file.notes[0];
  const MeasuredPair measured = read_measured_pair(out / "acceptance.json");
  EXPECT_EQ(measured.prompt_prints.size(), 16u);
  EXPECT_NO_THROW(require_other_prompts(out / "acceptance.json", measured, request.prompts));
  // Studied later on, they are named; the trees stay what they were.
  request.prompts.insert(request.prompts.end(), all.begin() + 4, all.begin() + 6);
  request.spare = left_out(all, request.prompts);
  const StudyOutcome more = conduct(request, out, {});
  ASSERT_EQ(more.file.notes.size(), 1u);
  EXPECT_NE(more.file.notes[0].find("2 of which are studied since"), std::string::npos)
      << more.file.notes[0];
  // One prompt too few.
  const StudyOutcome few = conduct(request, folder_.path() / "few", {});
  EXPECT_NE(few.file.notes[0].find("on 16 texts that the target wrote, for --limit leaves fewer "
                                   "than 16 prompts"),
            std::string::npos)
      << few.file.notes[0];
}

TEST_F(AcceptanceVector, TheCommandWritesVectorsAndGrowMaps) {
  const std::string models = " --device cpu --threads 1 --target '" +
                             (pair_.path() / "target").string() + "' --draft '" +
                             (pair_.path() / "draft").string() + "'";
  const auto shell = [&](const std::string& words) {
    const std::string command = "'" COPPICE_BINARY "' " + words + " >'" + file("out").string() +
                                "' 2>'" + file("err").string() + "'";
    const int status = std::system(command.c_str());
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  const std::string vectors = " --acceptance-vector '" + file().string() + "'";
  const std::string generate = "generate --prompt-ids 1,5,9 --max-new-tokens 8 --policy sequoia";
  EXPECT_EQ(
      shell("plan --temperatures 0,0.6 --limit 4 --prompt-tokens 8 --max-new-tokens 40 --out '" +
            file().string() + "'" + models),
      0)
      << bytes_of(file("err"));
  EXPECT_NE(bytes_of(file("out")).find("temperature 0.6, rejection"), std::string::npos);
  EXPECT_NE(bytes_of(file("err")).find("vectors written to '" + file().string()),
            std::string::npos);
  EXPECT_EQ(shell("plan --temperatures 0.6 --tree-size 7 --grow-map '" + file("map.json").string() +
                  "'" + vectors),
            0)
      << bytes_of(file("err"));
  const GrowMap map = read_grow_map(file("map.json"));
  EXPECT_EQ(map.shape.size(), 7);
  EXPECT_EQ(map.acceptance, read_measured_pair(file()).settings[1].acceptance_vector);

  EXPECT_EQ(shell(generate + " --temperature 0.6 --tree-size 7 --format json" + vectors + models),
            0)
      << bytes_of(file("err"));
  EXPECT_EQ(nlohmann::json::parse(bytes_of(file("out")))["planned_for"],
            "the acceptance vector given");
  EXPECT_EQ(shell(generate + " --temperature 0.7 --tree-size 7" + vectors + models), 2);
  EXPECT_NE(bytes_of(file("err")).find("none for temperature 0.7"), std::string::npos);
  EXPECT_EQ(
      shell(generate + " --temperature 0.6 --tree '" + file("map.json").string() + "'" + models),
      0);
  EXPECT_EQ(bytes_of(file("err")).find("grow map"), std::string::npos) << bytes_of(file("err"));
  EXPECT_EQ(
      shell(generate + " --temperature 0.7 --tree '" + file("map.json").string() + "'" + models),
      0);
  EXPECT_NE(bytes_of(file("err")).find("grow map used all the same"), std::string::npos);
  // What is there is not replaced; of several settings one is named.
  const std::string before = bytes_of(file());
  EXPECT_EQ(shell("plan --out '" + file().string() + "'" + models), 2);
  EXPECT_NE(bytes_of(file("err")).find("is there already"), std::string::npos);
  EXPECT_EQ(bytes_of(file()), before);
  const std::string other_map = "plan --grow-map '" + file("other.json").string() + "'" + vectors;
  EXPECT_EQ(shell(other_map), 2);
  EXPECT_NE(bytes_of(file("err")).find("it holds several settings (temperature 0, greedy; "),
            std::string::npos)
      << bytes_of(file("err"));
  MeasuredPair one = read_measured_pair(file());
  one.settings.erase(one.settings.begin());
  fs::remove(file());
  write_measured_pair(file(), one);
  EXPECT_EQ(shell(other_map), 0) << "the file's only setting";
  EXPECT_NE(bytes_of(file("err")).find("nodes for temperature 0.6, rejection written to"),
            std::string::npos)
      << bytes_of(file("err"));
  EXPECT_EQ(shell("plan --out '" + file("none/pair.json").string() + "'" + models), 1);
  EXPECT_EQ(shell("plan --temperatures 0" + models), 2);
  EXPECT_NE(bytes_of(file("err")).find("--out FILE"), std::string::npos);
}

// The root's first child, then that one's second.
TEST(RankCounts, AnAcceptedChildHasOthersJudgedBefore) {
  TokenTree tree;
  tree.reset(0);
  const std::int32_t a = tree.add(0, 5, 0, 0.5f, 1.0);
  tree.add(0, 6, 1, 0.2f, 0.5);
  tree.add(a, 7, 0, 0.5f, 0.5);
  const std::int32_t second = tree.add(a, 8, 1, 0.2f, 0.2);
  RankCounts ranks;
  ranks.add(tree, std::vector<std::int32_t>{a, second});
  EXPECT_EQ(ranks.judged, (std::vector<std::int64_t>{2, 1}));
  EXPECT_EQ(ranks.accepted, (std::vector<std::int64_t>{1, 1}));
}

}  // namespace
}  // namespace coppice::study
