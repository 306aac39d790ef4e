// Figures of trees in motion.
#include "workload/figure.h"

#include <gtest/gtest.h>

#include "reference/files.h"
#include "workload/templates.h"

namespace coppice::workload {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (auto at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++found;
  return found;
}

TEST(WorkloadFigure, ShowsWhoReadsWhatAndWhatIsPruned) {
  TreeTemplate tree;
  tree.nodes = {{-1, 20, -19, 0}, {0, 10, 1, 10}, {0, 16, 1, 16}, {2, 8, 17, 24}};
  const std::string svg = figure_of(tree);
  EXPECT_EQ(svg.rfind("<svg", 0), 0u);
  EXPECT_NE(svg.find("node 0, 20 tokens: read by 2 in iterations 1 to 10"), std::string::npos);
  EXPECT_NE(svg.find("node 0, 20 tokens: read by 1 in iterations 11 to 24"), std::string::npos);
  EXPECT_NE(svg.find("node 2, 16 tokens: read by 1 in iterations 1 to 24"), std::string::npos);
  EXPECT_NE(svg.find("node 1: pruned after iteration 10"), std::string::npos);
  EXPECT_EQ(count(svg, ": pruned after"), 1u);
  EXPECT_EQ(count(svg, ">pruned<"), 1u);
  EXPECT_EQ(count(svg, ">branches<"), 1u);
  for (const char* row : {">0: 20<", ">1: 10<", ">2: 16<", ">3: 8<"}) {
    EXPECT_EQ(count(svg, row), 1u) << row;
  }
  EXPECT_EQ(count(figure_of(few_shot(1, 30, 2)), ">row of a node, depth first<"), 1u);
  EXPECT_EQ(count(figure_of(few_shot(1, 3, 2)), ">pruned<"), 0u);  // a name of nothing
  EXPECT_NE(
      testing::error_of([] { figure_of(few_shot(1, 2000, 2)); }, ErrorKind::usage).find("2001"),
      std::string::npos);
}

TEST(WorkloadFigure, ShowsWhatStepsAccepted) {
  const std::vector<RankPath> paths = {{0}, {1}, {0, 0}};
  const std::string svg = figure_of(TreeShape(paths), {1, 3, 0});
  EXPECT_EQ(count(svg, "step 0: 1 token accepted"), 1u);
  EXPECT_EQ(count(svg, "step 1: 3 tokens accepted"), 1u);
  EXPECT_EQ(count(svg, "step 2"), 0u);
  EXPECT_EQ(count(svg, ">step<"), 1u);
}

// A record says how many tokens a step accepted, and of which tree; which nodes of it these were it
// does not say.
TEST(WorkloadFigure, ATreeOfEqualDepthGivesTheSameFigure) {
  const std::vector<RankPath> chain = {{0}, {0, 0}}, bushy = {{0}, {1}, {2}, {1, 0}, {2, 0}};
  const std::vector<std::int32_t> accepted = {1, 2, 3, 2};
  EXPECT_EQ(figure_of(TreeShape(chain), accepted), figure_of(TreeShape(bushy), accepted));
}

}  // namespace
}  // namespace coppice::workload
