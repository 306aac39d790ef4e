#include "base/token_tree.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>

#include "base/error.h"
#include "reference/all_trees.h"

namespace coppice {
namespace {

TEST(TokenTree, AddKeepsDepthAndPathProbability) {
  TokenTree tree;
  tree.reset(7);
  EXPECT_EQ(tree.size(), 0);
  const std::int32_t a = tree.add(0, 3, 0, 0.5f, 1.0);
  const std::int32_t b = tree.add(a, 4, 0, 0.25f, 0.5);
  const std::int32_t c = tree.add(0, 5, 1, 0.25f, 0.5);
  EXPECT_EQ(tree.nodes(), 4);
  EXPECT_EQ(tree.size(), 3);
  EXPECT_EQ(tree.depth[static_cast<std::size_t>(b)], 2);
  EXPECT_DOUBLE_EQ(tree.path_prob[static_cast<std::size_t>(b)], 0.125);
  EXPECT_EQ(tree.candidate[static_cast<std::size_t>(c)], c);
  EXPECT_EQ(tree.height(), 2);
  tree.validate(8);
  tree.reset(1);
  EXPECT_EQ(tree.size(), 0);
  EXPECT_EQ(tree.height(), 0);
  tree.validate(8);
}

TEST(TokenTree, EveryTreeUpToEightNodesIsValid) {
  int factorial = 1;
  for (std::int32_t nodes = 1; nodes <= 8; ++nodes) {
    int trees = 0;
    testing::for_each_tree(nodes, [&](const TokenTree& tree) {
      tree.validate(nodes);
      ++trees;
    });
    if (nodes > 1) factorial *= nodes - 1;
    EXPECT_EQ(trees, factorial);
  }
}

TEST(TokenTree, ValidateNamesWhatIsBroken) {
  const auto broken = [](const char* expected, const std::function<void(TokenTree&)>& change) {
    TokenTree tree = testing::tree_with_parents({-1, 0, 0, 1, 1});
    tree.validate(5);
    change(tree);
    try {
      tree.validate(5);
      ADD_FAILURE() << "accepted; expected: " << expected;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  };
  broken("the root is missing", [](TokenTree& t) { t = TokenTree(); });
  broken("differ in length", [](TokenTree& t) { t.value.pop_back(); });
  broken("root has a parent", [](TokenTree& t) { t.parent[0] = 0; });
  broken("does not come before", [](TokenTree& t) { t.parent[1] = 1; });
  broken("does not come before", [](TokenTree& t) { t.parent[1] = 4; });
  broken("does not come before", [](TokenTree& t) { t.parent[2] = -1; });
  broken("depth", [](TokenTree& t) { t.depth[3] = 1; });
  broken("ranks", [](TokenTree& t) { t.rank[4] = 0; });
  broken("ranks", [](TokenTree& t) { t.rank[1] = 1; });
  broken("outside the vocabulary", [](TokenTree& t) { t.token[2] = 5; });
  broken("outside the vocabulary", [](TokenTree& t) { t.token[0] = -1; });
  broken("probability", [](TokenTree& t) { t.draft_prob[2] = 1.5f; });
  broken("probability", [](TokenTree& t) { t.draft_prob[2] = std::nanf(""); });
  broken("repeats", [](TokenTree& t) { t.token[2] = t.token[1]; });
}

}  // namespace
}  // namespace coppice
