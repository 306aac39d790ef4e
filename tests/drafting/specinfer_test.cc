#include "drafting/specinfer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

#include "base/error.h"
#include "reference/table_draft.h"

namespace coppice {
namespace {

using testing::TableDraft;
using testing::TokenPath;

struct NaiveNode {
  std::vector<std::int32_t> ranks;
  TokenPath tokens;
  double value;
};

// Expansion by definition: every node gets its layer's number of children, node by node, each
// drawn by inverse CDF from what its siblings leave.
void expand(const TableDraft::Rows& draft, const std::vector<std::int32_t>& widths,
            const StepKey& key, double min_value, const NaiveNode& parent, double parent_prob,
            std::uint64_t parent_key, std::vector<NaiveNode>& nodes) {
  if (parent.ranks.size() == widths.size()) return;
  const std::vector<float> row = draft(parent.tokens);
  std::vector<double> left(row.begin(), row.end());
  double drawn = 0.0;
  double value = std::min(parent_prob, parent.value);
  for (std::int32_t rank = 0; rank < widths[parent.ranks.size()]; ++rank) {
    const double mass = std::accumulate(left.begin(), left.end(), 0.0);
    if (!(mass > 0.0) || !(value > 0.0) || value < min_value) return;
    const double wanted =
        mass * uniform(RandomStream::draft, key, parent_key, static_cast<std::uint64_t>(rank));
    std::size_t token = 0;
    double sum = 0.0;
    for (std::size_t i = 0; i < left.size() && sum <= wanted; ++i) {
      if (left[i] > 0.0) token = i;
      sum += left[i];
    }
    left[token] = 0.0;
    NaiveNode node{parent.ranks, parent.tokens, value};
    node.ranks.push_back(rank);
    node.tokens.push_back(static_cast<TokenId>(token));
    nodes.push_back(node);
    const auto prob = static_cast<double>(row[token]);
    expand(draft, widths, key, min_value, node, parent_prob * prob,
           child_node_key(parent_key, rank), nodes);
    drawn += prob;
    value = std::min(value, parent_prob * std::max(0.0, 1.0 - drawn));
  }
}

// Layer by layer, rank by rank, then in the order of parents: ranks read backwards.
bool drawn_before(const NaiveNode& a, const NaiveNode& b) {
  if (a.ranks.size() != b.ranks.size()) return a.ranks.size() < b.ranks.size();
  return std::lexicographical_compare(a.ranks.rbegin(), a.ranks.rend(), b.ranks.rbegin(),
                                      b.ranks.rend());
}

TEST(Specinfer, IsTheLiteralExpansion) {
  const std::vector<std::vector<std::int32_t>> shapes{
      {1}, {3}, {2, 2, 1}, {1, 1, 3, 1, 1, 1, 1, 1}, {1, 4, 2}, {40, 2}, {2, 1, 2, 1, 2}};
  for (std::uint64_t seed = 0; seed < 840; ++seed) {
    const std::vector<std::int32_t>& shape = shapes[seed % shapes.size()];
    const std::size_t vocab = std::vector<std::size_t>{1, 2, 3, 8, 20}[seed % 5];
    const TableDraft::Rows draft = [&](const TokenPath& path) {
      return testing::random_row(seed, vocab, path);
    };
    const StepKey key{seed, 1, 2, 3};
    GrowthLimits limits;
    limits.max_size = 1 << 20;
    if (seed % 3 == 1) limits.max_depth = 1 + static_cast<std::int32_t>(seed / 3 % 4);
    if (seed % 4 == 1) limits.min_value = 0.02;

    std::vector<std::int32_t> widths = shape;
    if (static_cast<std::size_t>(limits.max_depth) < widths.size()) {
      widths.resize(static_cast<std::size_t>(limits.max_depth));
    }
    std::vector<NaiveNode> expected;
    expand(draft, widths, key, limits.min_value, {{}, {}, 1.0}, 1.0, root_node_key, expected);
    std::sort(expected.begin(), expected.end(), drawn_before);

    const auto policy = make_specinfer_policy(shape);
    const auto whole = static_cast<std::int32_t>(expected.size());
    for (const std::int32_t size : {1 << 20, whole, whole - 1, whole / 2, 1, 0}) {
      limits.max_size = size;
      TableDraft source(draft, vocab, key, AcceptanceRule::rejection);
      TokenTree tree;
      tree.reset(0);
      grow_tree(*policy, source, limits, tree);
      tree.validate(static_cast<std::int32_t>(vocab));
      ASSERT_FALSE(source.broken);
      ASSERT_EQ(tree.size(), std::min(whole, std::max(size, 0)));
      ASSERT_EQ(source.passes, tree.height()) << "one draft pass per layer";
      ASSERT_LE(source.most_live, static_cast<std::size_t>(tree.nodes()));
      for (std::int32_t node = 1; node < tree.nodes(); ++node) {
        const auto i = static_cast<std::size_t>(node);
        ASSERT_EQ(testing::path_to(tree, node), expected[i - 1].tokens);
        ASSERT_EQ(tree.rank[i], expected[i - 1].ranks.back());
        ASSERT_DOUBLE_EQ(tree.value[i], expected[i - 1].value);
      }
      // Same noise, same tree, whatever the policy did before.
      TableDraft again(draft, vocab, key, AcceptanceRule::rejection);
      TokenTree repeated;
      repeated.reset(0);
      grow_tree(*policy, again, limits, repeated);
      ASSERT_EQ(repeated.token, tree.token);
      ASSERT_EQ(repeated.parent, tree.parent);
    }
  }
}

TEST(Specinfer, WidthsOfASize) {
  using Widths = std::vector<std::int32_t>;
  EXPECT_EQ(specinfer_widths(20), (Widths{1, 1, 3, 1, 1, 1, 1, 1}));
  EXPECT_EQ(specinfer_widths(3), (Widths{1, 1, 1}));
  EXPECT_EQ(specinfer_widths(8), Widths(8, 1));
  EXPECT_EQ(specinfer_widths(13), Widths(8, 1));
  EXPECT_EQ(specinfer_widths(64), (Widths{1, 1, 10, 1, 1, 1, 1, 1}));
  for (std::int32_t size = 1; size <= 1024; ++size) {
    std::int32_t layer = 1, nodes = 0;
    for (const std::int32_t width : specinfer_widths(size)) nodes += layer *= width;
    EXPECT_LE(nodes, size);
    EXPECT_GT(nodes, size - 6);
  }
}

TEST(Specinfer, RefusesWidthsThatMeanNothing) {
  EXPECT_THROW(make_specinfer_policy({}), Error);
  EXPECT_THROW(make_specinfer_policy({2, 0}), Error);
  EXPECT_THROW(make_specinfer_policy({-1}), Error);
  EXPECT_THROW(specinfer_widths(0), Error);
}

}  // namespace
}  // namespace coppice
