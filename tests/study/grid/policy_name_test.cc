// Policies by the names that studies know, a user's own among them.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "base/error.h"
#include "engine/pair.h"
#include "reference/files.h"
#include "study/grid/cell.h"
#include "study/grid/grid.h"
#include "study/grid/study.h"
#include "study/report/study_tables.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using coppice::testing::TemporaryFolder;
using coppice::testing::TinyModel;
using coppice::testing::TinyPair;

// Two children of every node, layer by layer.
class Twos final : public CustomPolicy {
 public:
  std::vector<std::int32_t> grow(GrowingTree& tree,
                                 std::span<const std::int32_t> evaluated) override {
    std::vector<std::int32_t> layer;
    for (const std::int32_t node : evaluated) {
      for (int children = 2; children > 0 && tree.room() > 0; --children) {
        if (const auto child = tree.draw(node)) layer.push_back(*child);
      }
    }
    if (tree.room() == 0 || tree.node(tree.nodes() - 1).depth == tree.max_depth()) return {};
    return layer;
  }
};

/// Registers `name` for Twos, in this process once.
void know(const std::string& name) {
  static std::set<std::string> known;
  if (known.insert(name).second) register_policy(name, [] { return std::make_unique<Twos>(); });
}

TEST(PolicyName, EveryNameComesBack) {
  know("twos");
  const std::vector<std::string> names = study_policy_names();
  for (const char* name :
       {"none", "dyspec", "dyspec-plain", "dyspec-threshold-plain", "expand-rerank", "twos"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
  for (const std::string& name : names) {
    const GenerateOptions o = policy_named(name);
    EXPECT_EQ(policy_name(o.policy, o.custom_policy, o.plain_values), name);
    EXPECT_EQ(o.plain_values, name.ends_with("-plain")) << name;
    EXPECT_EQ(o.policy == Policy::custom, name == "twos") << name;
  }
}

TEST(PolicyName, NamesThatMeanSomethingElseAreRefused) {
  EXPECT_NO_THROW(policy_named("dyspec-plain"));
  for (const char* name : {"plain", "threes"}) {
    try {
      policy_named(name);
      FAIL() << "no error for " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("is unknown; use dyspec, "), std::string::npos)
          << error.what();
    }
  }
  know("oracle");
  try {
    policy_named("oracle");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("register it by another"), std::string::npos)
        << error.what();
  }
  const std::vector<std::string> names = study_policy_names();
  EXPECT_EQ(std::count(names.begin(), names.end(), "oracle"), 0);
}

TEST(PolicyName, DepthIsForRegisteredPoliciesToo) {
  know("twos");
  GridLists lists;
  lists.policies = {"twos", "chain"};
  lists.tree_sizes = {6};
  lists.tree_depth = 2;
  const Grid grid = make_grid(lists, {});
  ASSERT_EQ(grid.cells.size(), 3u);
  EXPECT_EQ(grid.cells[1].key(), "twos size=6 depth=2 temperature=0 acceptance=rejection seed=0");
  EXPECT_EQ(grid.cells[2].tree_depth, 0);
  for (const Cell& cell : grid.cells) EXPECT_NO_THROW(cell.request({}).validate());
  lists.policies = {"chain"};
  EXPECT_THROW(make_grid(lists, {}), Error);
}

TinyModel peaky() {
  TinyModel model;
  model.logit_scale = 2.0;
  return model;
}

// A study of names brings what the engine brings when it is asked the same directly.
TEST(PolicyName, PoliciesAreStudiedByName) {
  know("twos");
  const TemporaryFolder folder;
  const TinyPair pair(peaky(), 0.2);
  GridLists lists;
  lists.policies = {"dyspec", "dyspec-plain", "dyspec-threshold-plain", "twos"};
  lists.tree_sizes = {6};
  lists.temperatures = {0.8};
  lists.threshold = 0.05;
  StudyRequest request;
  request.prompts_file = "made up";
  for (const TokenId token : {5, 9, 31}) {
    request.prompts.push_back({"", "", {1, token, 7}, token, {}});
  }
  const std::vector<PromptName> names = names_of(request.prompts);
  request.shared.max_new_tokens = 40;
  request.shared.ignore_eos = true;
  request.cells = make_grid(lists, request.shared).cells;
  request.engine = pair.options();
  const Summary summary = conduct(request, folder.path() / "out", {}).summary;

  Engine engine = Engine::load(request.engine);
  std::map<std::string, double> length;
  ASSERT_EQ(summary.rows.size(), 5u);
  for (std::size_t r = 1; r < summary.rows.size(); ++r) {
    const std::string& name = lists.policies[r - 1];
    GenerateOptions options;
    if (name == "twos") {
      options.policy = Policy::custom;
      options.custom_policy = name;
    } else {
      options.policy = name == "dyspec-threshold-plain" ? Policy::dyspec_threshold : Policy::dyspec;
      options.plain_values = name.ends_with("-plain");
      options.threshold = options.policy == Policy::dyspec_threshold ? 0.05 : 0.0;
    }
    options.tree_size = 6;
    options.temperature = 0.8;
    options.max_new_tokens = 40;
    options.ignore_eos = true;
    double good = 0.0, steps = 0.0, trees = 0.0;
    for (std::size_t p = 0; p < request.prompts.size(); ++p) {
      options.stream = stream_of(names[p].id);
      const Statistics s = engine.generate(request.prompts[p].tokens, options).statistics;
      const auto n = static_cast<double>(s.steps);
      good += s.accepted_length * n;
      steps += n;
      trees += s.tree_size_mean * n;
    }
    const SummaryRow& row = summary.rows[r];
    EXPECT_EQ(row.cell.name(), name);
    EXPECT_NEAR(row.accepted_length.value, good / steps, 1e-9) << name;
    EXPECT_NEAR(row.tree_size, trees / steps, 1e-9) << name;
    EXPECT_GT(row.accepted_length.value, 1.0) << name;
    length[name] = row.accepted_length.value;
  }
  EXPECT_NE(length["dyspec"], length["dyspec-plain"]) << "both grew the same trees";
  EXPECT_NE(length["dyspec"], length["twos"]) << "both grew the same trees";

  // Under its name everywhere.
  const std::string csv = testing::bytes_of(folder.path() / "out" / "summary.csv");
  const std::string page = testing::bytes_of(folder.path() / "out" / "report.html");
  const Table table = summary_table(summary);
  const fs::path figures = folder.path() / "out" / "figures";
  for (std::size_t r = 1; r < summary.rows.size(); ++r) {
    const std::string& name = lists.policies[r - 1];
    EXPECT_NE(csv.find("\n" + name + ",6,"), std::string::npos) << csv;
    EXPECT_EQ(table.rows[r][0], name);
    EXPECT_NE(page.find(">" + name + "</td>"), std::string::npos) << name;
    EXPECT_TRUE(fs::exists(figures / ("steps_" + name + "_6_t0.8_rejection.svg"))) << name;
    for (const char* figure : {"accepted_length", "speedup", "calibration", "time"}) {
      const std::string svg =
          testing::bytes_of(figures / (std::string(figure) + "_t0.8_rejection.svg"));
      EXPECT_NE(svg.find(">" + name + "<"), std::string::npos) << figure << " lacks " << name;
    }
  }
  EXPECT_NE(page.find("policies with learned acceptance"), std::string::npos);
}

}  // namespace
}  // namespace coppice::study
