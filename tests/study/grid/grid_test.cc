#include "study/grid/grid.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error.h"

namespace coppice::study {
namespace {

std::vector<std::string> keys(const Grid& grid) {
  std::vector<std::string> all;
  for (const Cell& cell : grid.cells) all.push_back(cell.key());
  return all;
}

void expect_error(const GridLists& lists, const std::string& says) {
  try {
    make_grid(lists, {});
    FAIL() << "no error: " << says;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
  }
}

TEST(Grid, IsTheCrossProductWithPlainDecoding) {
  GridLists lists;
  lists.policies = {"dyspec", "none", "chain"};
  lists.tree_sizes = {16, 0};
  lists.temperatures = {0.0, 0.6};
  lists.acceptances = {Acceptance::rejection, Acceptance::coupled};
  lists.seeds = {1, 2};
  const Grid grid = make_grid(lists, {});
  // Per seed: one rule at temperature 0, two at 0.6, each with plain and two policies of two sizes.
  EXPECT_EQ(grid.cells.size(), 2u * 3u * 5u);
  const auto all = keys(grid);
  EXPECT_EQ(std::set<std::string>(all.begin(), all.end()).size(), all.size());
  EXPECT_EQ(all[0], "none temperature=0 acceptance=rejection seed=1");
  EXPECT_NE(std::find(all.begin(), all.end(),
                      "chain size=auto temperature=0.6 acceptance=coupled seed=2"),
            all.end());
  ASSERT_EQ(grid.notes.size(), 1u);
  EXPECT_NE(grid.notes[0].find("coupled acceptance at temperature 0"), std::string::npos);
  for (const Cell& cell : grid.cells) {
    EXPECT_NE(std::find(all.begin(), all.end(), plain_of(cell).key()), all.end()) << cell.key();
    EXPECT_NO_THROW(cell.request({}).validate());
  }
}

// A study that is begun under one rule and goes on under both has the same cells at temperature 0.
TEST(Grid, AtTemperatureZeroThereIsOneRule) {
  GridLists lists;
  lists.policies = {"chain"};
  lists.acceptances = {Acceptance::coupled};
  const Grid coupled = make_grid(lists, {});
  EXPECT_EQ(keys(coupled), (std::vector<std::string>{
                               "none temperature=0 acceptance=rejection seed=0",
                               "chain size=auto temperature=0 acceptance=rejection seed=0"}));
  lists.acceptances = {Acceptance::coupled, Acceptance::rejection};
  EXPECT_EQ(keys(make_grid(lists, {})), keys(coupled));
}

// "auto" is what costs choose; a policy's usual size has its number, and is no other cell than it.
TEST(Grid, UsualSizesGoByTheirNumbers) {
  GridLists lists;
  lists.policies = {"specinfer", "sequoia", "expand-rerank", "chain", "dyspec"};
  lists.tree_sizes = {0, 20, 64};
  std::vector<std::string> labels;
  for (const Cell& cell : make_grid(lists, {}).cells) labels.push_back(cell.label());
  EXPECT_EQ(labels, (std::vector<std::string>{
                        "plain", "specinfer 20", "specinfer 64", "sequoia 64", "sequoia 20",
                        "expand-rerank 60", "expand-rerank 20", "expand-rerank 64", "chain auto",
                        "chain 20", "chain 64", "dyspec auto", "dyspec 20", "dyspec 64"}));
  lists.policies = {"specinfer"};
  lists.options.widths = {3, 2};
  const Cell shaped = make_grid(lists, {}).cells.at(1);
  EXPECT_EQ(shaped.size_text(), "9") << "3 nodes and 2 children of each";
  EXPECT_EQ(shaped.tree_size, 0) << "the request's";
}

TEST(Grid, LeavesOutWhatTheEngineRefusesAndSaysWhy) {
  GridLists lists;
  lists.policies = {"expand-rerank", "chain"};
  lists.tree_sizes = {8};
  lists.temperatures = {0.0, 0.8};
  const Grid grid = make_grid(lists, {});
  EXPECT_EQ(grid.cells.size(), 5u);
  ASSERT_EQ(grid.notes.size(), 1u);
  EXPECT_NE(grid.notes[0].find("expand-rerank at temperature 0.8"), std::string::npos);
  EXPECT_NE(grid.notes[0].find("would bias the text"), std::string::npos);
  lists.temperatures = {0.8};  // refused everywhere
  expect_error(lists, "--policies expand-rerank");
}

TEST(Grid, OptionsGoToTheirPolicies) {
  GridLists lists;
  lists.policies = {"specinfer", "sequoia", "dyspec-threshold", "dyspec"};
  lists.tree_sizes = {16, 64};
  lists.options.widths = {3, 2};
  lists.options.tree_depth = 4;
  lists.options.threshold = 0.01;
  lists.draft_temperature = 0.5;
  const auto all = keys(make_grid(lists, {}));
  EXPECT_EQ(all, (std::vector<std::string>{
                     "none temperature=0 acceptance=rejection seed=0",
                     "specinfer widths=3 2 temperature=0 draft-temperature=0.5 "
                     "acceptance=rejection seed=0",
                     "sequoia size=16 tree_depth=4 temperature=0 draft-temperature=0.5 "
                     "acceptance=rejection seed=0",
                     "sequoia size=64 tree_depth=4 temperature=0 draft-temperature=0.5 "
                     "acceptance=rejection seed=0",
                     "dyspec-threshold size=16 threshold=0.01 temperature=0 "
                     "draft-temperature=0.5 acceptance=rejection seed=0",
                     "dyspec-threshold size=64 threshold=0.01 temperature=0 "
                     "draft-temperature=0.5 acceptance=rejection seed=0",
                     "dyspec size=16 temperature=0 draft-temperature=0.5 "
                     "acceptance=rejection seed=0",
                     "dyspec size=64 temperature=0 draft-temperature=0.5 "
                     "acceptance=rejection seed=0"}))
      << "given widths make one tree, not two";
}

TEST(Grid, PlainValuesNeedASizeWhereTheEngineSaysSo) {
  GridLists lists;
  lists.policies = {"dyspec-plain", "dyspec", "dyspec-threshold-plain"};
  lists.tree_sizes = {0, 16};
  lists.options.threshold = 0.1;
  const Grid grid = make_grid(lists, {});
  EXPECT_EQ(keys(grid), (std::vector<std::string>{
                            "none temperature=0 acceptance=rejection seed=0",
                            "dyspec-plain size=16 temperature=0 acceptance=rejection seed=0",
                            "dyspec size=auto temperature=0 acceptance=rejection seed=0",
                            "dyspec size=16 temperature=0 acceptance=rejection seed=0",
                            "dyspec-threshold-plain size=auto threshold=0.1 temperature=0 "
                            "acceptance=rejection seed=0",
                            "dyspec-threshold-plain size=16 threshold=0.1 temperature=0 "
                            "acceptance=rejection seed=0"}));
  for (const Cell& cell : grid.cells) {
    EXPECT_EQ(cell.plain_values, cell.name().ends_with("-plain")) << cell.key();
  }
  lists.temperatures = {0.0, 0.8};
  const Grid more = make_grid(lists, {});
  EXPECT_EQ(more.cells.size(), 2 * grid.cells.size());
  EXPECT_EQ(more.notes, grid.notes) << "one line for all temperatures";
  ASSERT_EQ(grid.notes.size(), 1u);
  EXPECT_TRUE(grid.notes[0].starts_with("left out: dyspec-plain of automatic size: "))
      << grid.notes[0];
  lists.tree_sizes = {0};
  expect_error(lists, "--policies dyspec-plain: plain-values");
}

TEST(Grid, Errors) {
  GridLists lists;
  expect_error(lists, "--policies: the list is empty");
  lists.policies = {"dyspec"};
  lists.temperatures = {-1.0};
  expect_error(lists, "temperature -1");
  lists.temperatures = {0.0};
  lists.tree_sizes = {5000};
  expect_error(lists, "--tree-sizes 5000");
  lists.tree_sizes = {8};
  lists.options.widths = {2};
  expect_error(lists, "--widths: it belongs to policy specinfer");
  lists.options.widths.clear();
  lists.draft_temperature = 500.0;
  expect_error(lists, "draft-temperature 500");
  lists.draft_temperature = -1.0;
  lists.policies = {"custom"};
  expect_error(lists, "--policies 'custom' is unknown; use dyspec, dyspec-plain, ");
  lists.policies = {"static"};
  expect_error(lists, "policy static needs one");
}

}  // namespace
}  // namespace coppice::study
