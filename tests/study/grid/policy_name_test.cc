// Policies by the names that studies know.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "base/error.h"
#include "engine/pair.h"
#include "reference/files.h"
#include "study/grid/grid.h"
#include "study/report/study_report.h"
#include "study/study.h"

namespace coppice::study {
namespace {

namespace fs = std::filesystem;
using coppice::testing::TemporaryFolder;
using coppice::testing::TinyModel;
using coppice::testing::TinyPair;

TEST(PolicyName, EveryNameComesBack) {
  const std::vector<std::string> names = study_policy_names();
  for (const char* name :
       {"none", "dyspec", "dyspec-plain", "dyspec-threshold-plain", "expand-rerank", "lookup",
        "dyspec+lookup", "dyspec-plain+lookup", "dyspec-threshold+lookup", "chain+lookup"}) {
    EXPECT_EQ(std::count(names.begin(), names.end(), name), 1) << name;
  }
  for (const std::string& name : names) {
    const PolicyOptions o = policy_named(name);
    EXPECT_EQ(policy_name(o), name);
    EXPECT_EQ(o.plain_values, name.find("-plain") != name.npos) << name;
    EXPECT_EQ(o.looks_up, name.ends_with("lookup")) << name;
    EXPECT_EQ(o.drafts, name != "lookup") << name;
  }
}

TEST(PolicyName, OtherNamesAreRefused) {
  for (const char* name :
       {"plain", "oracle", "chain-plain", "threes", "sequoia+lookup", "+lookup"}) {
    try {
      policy_named(name);
      FAIL() << "no error for " << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_NE(std::string(error.what()).find("is unknown; use dyspec, dyspec-plain, dyspec-thr"),
                std::string::npos)
          << error.what();
    }
  }
}

// A study of names brings what the engine brings when it is asked the same directly.
TEST(PolicyName, PoliciesAreStudiedByName) {
  const TemporaryFolder folder;
  TinyModel peaky;
  peaky.logit_scale = 2.0;
  const TinyPair pair(peaky, 0.2);
  GridLists lists;
  lists.policies = {"dyspec", "dyspec-plain",  "dyspec-threshold-plain",
                    "chain",  "dyspec+lookup", "chain+lookup",
                    "lookup"};
  lists.tree_sizes = {6};
  lists.temperatures = {0.8};
  lists.options.threshold = 0.05;
  StudyRequest request;
  request.prompts_file = "made up";
  for (const TokenId token : {5, 9, 31}) {
    request.prompts.push_back({"", {}, {1, token, 7, 9, 1, token, 7, 9, 1, token, 7}, token});
  }
  const std::vector<PromptName> names = names_of(request.prompts);
  request.shared.max_new_tokens = 40;
  request.shared.ignore_eos = true;
  request.cells = make_grid(lists, request.shared).cells;
  request.engine = pair.options();
  const Summary summary = conduct(request, folder.path() / "out", {}).summary;

  Engine engine = Engine::load(request.engine);
  std::map<std::string, double> length;
  const std::map<std::string, Speculation> asked = {
      {"dyspec", Dyspec{6}},
      {"dyspec-plain", Dyspec{6, true}},
      {"dyspec-threshold-plain", DyspecThreshold{0.05, 6, true}},
      {"chain", Chain{6}},
      {"dyspec+lookup", Dyspec{6}},
      {"chain+lookup", Chain{6}},
      {"lookup", Dyspec{6}}};
  ASSERT_EQ(summary.rows.size(), 8u);
  for (std::size_t r = 1; r < summary.rows.size(); ++r) {
    const std::string& name = lists.policies[r - 1];
    GenerateOptions options;
    options.speculation = asked.at(name);
    options.sampling.temperature = 0.8;
    options.max_new_tokens = 40;
    options.ignore_eos = true;
    options.lookup = name.ends_with("lookup") ? Lookup::text : Lookup::none;
    options.use_draft = name != "lookup";
    double good = 0.0, steps = 0.0, trees = 0.0, looked = 0.0, found = 0.0, passes = 0.0;
    for (std::size_t p = 0; p < request.prompts.size(); ++p) {
      options.stream = stream_of(names[p].id);
      const Statistics s = engine.generate(request.prompts[p].tokens, options).statistics;
      const auto n = static_cast<double>(s.steps);
      good += s.accepted_length * n;
      steps += n;
      trees += s.tree_size_mean * n;
      looked += static_cast<double>(s.looked_up);
      found += static_cast<double>(s.looked_up_accepted);
      passes += static_cast<double>(s.draft_passes);
    }
    const SummaryRow& row = summary.rows[r];
    EXPECT_EQ(row.cell.name(), name);
    EXPECT_NEAR(row.accepted_length.value, good / steps, 1e-9) << name;
    EXPECT_NEAR(row.tree_size, trees / steps, 1e-9) << name;
    EXPECT_GT(row.accepted_length.value, 1.0) << name;
    EXPECT_NEAR(row.looked_up, looked / steps, 1e-9) << name;
    EXPECT_NEAR(row.looked_up_accepted(), found / steps, 1e-9) << name;
    if (!name.ends_with("lookup")) {
      EXPECT_EQ(looked, 0.0) << name;
    } else if (name != "dyspec+lookup") {  // whose draft may be worth more
      EXPECT_GT(looked, 0.0) << name;
    }
    EXPECT_EQ(passes > 0.0, name != "lookup") << name;
    EXPECT_NEAR(row.acceptance_rate.value,
                static_cast<double>(row.nodes.total().accepted) /
                    static_cast<double>(row.nodes.total().examined),
                1e-9)
        << name;
    length[name] = row.accepted_length.value;
  }
  EXPECT_NE(length["dyspec"], length["dyspec-plain"]) << "both grew the same trees";
  EXPECT_NE(length["dyspec"], length["chain"]) << "both grew the same trees";

  // Under its name everywhere.
  const std::string csv = testing::bytes_of(folder.path() / "out" / "summary.csv");
  const std::string page = testing::bytes_of(folder.path() / "out" / "report.html");
  const Table table = summary_table(summary.rows);
  const fs::path figures = folder.path() / "out" / "figures";
  for (std::size_t r = 1; r < summary.rows.size(); ++r) {
    const std::string& name = lists.policies[r - 1];
    EXPECT_NE(csv.find("\n" + name + ",6,"), std::string::npos) << csv;
    EXPECT_EQ(table.rows[r][0], name);
    EXPECT_NE(page.find(">" + name + "</td>"), std::string::npos) << name;
    for (const char* figure : {"accepted_length", "speedup", "acceptance_by_draft_probability"}) {
      if (name == "lookup" && std::string(figure).ends_with("probability"))
        continue;  // it has none
      const std::string svg =
          testing::bytes_of(figures / (std::string(figure) + "_t0.8_rejection.svg"));
      EXPECT_NE(svg.find(">" + name + "<"), std::string::npos) << figure << " lacks " << name;
    }
  }
}

}  // namespace
}  // namespace coppice::study
