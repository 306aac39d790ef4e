#include "drafting/merge_trees.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <vector>

#include "base/error.h"
#include "drafting/specinfer.h"
#include "reference/table_draft.h"

namespace coppice {
namespace {

using testing::TokenPath;

TokenTree grown(std::uint64_t seed, std::size_t vocab, ChildDraw draw) {
  testing::TableDraft source(
      [&](const TokenPath& path) { return testing::random_row(seed, vocab, path); }, vocab,
      {seed, 1, 1, 1}, draw);
  TokenTree tree;
  tree.reset(1);
  std::mt19937_64 random(seed);
  std::vector<std::int32_t> widths(1 + random() % 4);
  for (std::int32_t& width : widths) width = 1 + static_cast<std::int32_t>(random() % 3);
  GrowthLimits limits;
  limits.max_size = static_cast<std::int32_t>(random() % 30);
  make_specinfer_policy(widths)->grow(source, limits, tree);
  return tree;
}

TEST(MergeTrees, IsTheUnionOfTheirPaths) {
  std::size_t shared = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const std::size_t vocab = 2 + seed % 5;
    std::vector<TokenTree> trees;
    for (std::uint64_t draft = 0; draft < 1 + seed % 4; ++draft) {
      trees.push_back(
          grown(1000 * draft + seed, vocab, draft % 2 == 0 ? ChildDraw::top : ChildDraw::coupled));
    }
    const TokenTree merged = merge_trees(trees, ChildDraw::coupled);
    merged.validate(static_cast<std::int32_t>(vocab));
    EXPECT_EQ(merged.token[0], 1);

    // Paths in order of appearance, each once; the first tree's D.
    std::vector<TokenPath> expected;
    std::map<TokenPath, float> draft_prob;
    std::size_t nodes = 0;
    for (const TokenTree& tree : trees) {
      for (std::int32_t node = 1; node < tree.nodes(); ++node) {
        const TokenPath path = testing::path_to(tree, node);
        ++nodes;
        if (draft_prob.emplace(path, tree.draft_prob[static_cast<std::size_t>(node)]).second) {
          expected.push_back(path);
        }
      }
    }
    ASSERT_EQ(testing::paths_of(merged), expected);
    shared += nodes - expected.size();
    for (std::size_t i = 1; i < merged.token.size(); ++i) {
      ASSERT_EQ(merged.draft_prob[i], draft_prob.at(expected[i - 1]));
    }
    // Siblings in order of first appearance.
    std::map<TokenPath, std::int32_t> children;
    for (std::size_t i = 1; i < merged.token.size(); ++i) {
      TokenPath parent = expected[i - 1];
      parent.pop_back();
      ASSERT_EQ(merged.rank[i], children[parent]++);
    }
    // A tree merged with itself, or alone, is itself.
    const TokenTree twice = merge_trees(std::vector<TokenTree>{merged, merged}, ChildDraw::top);
    ASSERT_EQ(twice.token, merged.token);
    ASSERT_EQ(twice.parent, merged.parent);
    ASSERT_EQ(twice.rank, merged.rank);
  }
  EXPECT_GT(shared, 0u);
}

TEST(MergeTrees, RefusesWhatItWouldBiasOrCannotMerge) {
  std::vector<TokenTree> trees(2);
  trees[0].reset(1);
  trees[1].reset(1);
  EXPECT_EQ(merge_trees(trees, ChildDraw::top).size(), 0);
  try {
    merge_trees(trees, ChildDraw::sampled);
    FAIL() << "sampled rejection was not refused";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::usage);
    EXPECT_NE(std::string(error.what()).find("sampled rejection"), std::string::npos);
  }
  trees[1].reset(2);
  EXPECT_THROW(merge_trees(trees, ChildDraw::top), Error);
  EXPECT_THROW(merge_trees({}, ChildDraw::top), Error);
}

}  // namespace
}  // namespace coppice
