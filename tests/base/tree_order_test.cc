#include "base/tree_order.h"

#include <gtest/gtest.h>

#include <vector>

#include "reference/all_trees.h"

namespace coppice {
namespace {

bool descends(const TokenTree& tree, std::int32_t node, std::int32_t from) {
  while (node >= 0 && node != from) node = tree.parent[static_cast<std::size_t>(node)];
  return node == from;
}

void walk(const TokenTree& tree, std::int32_t node, std::vector<std::int32_t>& rows) {
  rows.push_back(node);
  for (std::int32_t i = 0; i < tree.nodes(); ++i) {
    if (tree.parent[static_cast<std::size_t>(i)] == node) walk(tree, i, rows);
  }
}

TEST(TreeOrder, EveryTreeUpToEightNodes) {
  TreeOrder order;
  std::vector<std::int32_t> expected;
  for (std::int32_t nodes = 1; nodes <= 8; ++nodes) {
    testing::for_each_tree(nodes, [&](const TokenTree& tree) {
      order.assign(tree);
      expected.clear();
      walk(tree, 0, expected);
      ASSERT_EQ(order.node_of_row, expected);
      for (std::int32_t row = 0; row < nodes; ++row) {
        const std::int32_t node = order.node_of_row[static_cast<std::size_t>(row)];
        ASSERT_EQ(order.row_of_node[static_cast<std::size_t>(node)], row);
        // Who may see a row's token is the interval that starts at the row.
        const std::int32_t past = row + order.subtree_rows[static_cast<std::size_t>(row)];
        for (std::int32_t other = 0; other < nodes; ++other) {
          const std::int32_t viewer = order.node_of_row[static_cast<std::size_t>(other)];
          ASSERT_EQ(other >= row && other < past, descends(tree, viewer, node));
        }
      }
    });
  }
}

TEST(TreeOrder, EveryPartOfATreeIsItsOrderWithoutTheRest) {
  TreeOrder whole, part;
  std::int64_t parts = 0;
  testing::for_each_tree(6, [&](const TokenTree& tree) {
    whole.assign(tree);
    for (unsigned set = 1; set < 64; set += 2) {  // the root is in all of them
      const auto has = [&](std::int32_t node) { return (set >> node & 1) != 0; };
      bool closed = true;
      for (std::int32_t node = 1; node < 6; ++node) {
        closed &= !has(node) || has(tree.parent[static_cast<std::size_t>(node)]);
      }
      if (!closed) continue;
      ++parts;
      part.assign(tree, has);
      std::vector<std::int32_t> expected;
      for (const std::int32_t node : whole.node_of_row) {
        if (has(node)) expected.push_back(node);
      }
      ASSERT_EQ(part.node_of_row, expected);
      for (std::int32_t node = 0; node < 6; ++node) {
        const std::int32_t row = part.row_of_node[static_cast<std::size_t>(node)];
        if (!has(node)) {
          ASSERT_EQ(row, -1);
          continue;
        }
        std::int32_t size = 0;
        for (const std::int32_t other : expected) size += descends(tree, other, node) ? 1 : 0;
        ASSERT_EQ(part.subtree_rows[static_cast<std::size_t>(row)], size);
      }
    }
  });
  EXPECT_GT(parts, 1000);
}

}  // namespace
}  // namespace coppice
