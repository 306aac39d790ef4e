#include "base/tree_order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "reference/all_trees.h"

namespace coppice {
namespace {

bool descends(const TokenTree& tree, std::int32_t node, std::int32_t from) {
  while (node >= 0 && node != from) node = tree.parent[static_cast<std::size_t>(node)];
  return node == from;
}

std::int32_t subtree_size(const TokenTree& tree, std::int32_t node) {
  std::int32_t size = 0;
  for (std::int32_t i = 0; i < tree.nodes(); ++i) size += descends(tree, i, node) ? 1 : 0;
  return size;
}

void walk(const TokenTree& tree, ChildOrder order, std::int32_t node,
          std::vector<std::int32_t>& rows) {
  rows.push_back(node);
  std::vector<std::int32_t> children;
  for (std::int32_t i = 0; i < tree.nodes(); ++i) {
    if (tree.parent[static_cast<std::size_t>(i)] == node) children.push_back(i);
  }
  if (order == ChildOrder::heavy_path) {
    std::stable_sort(children.begin(), children.end(), [&](std::int32_t a, std::int32_t b) {
      return subtree_size(tree, a) > subtree_size(tree, b);
    });
  }
  for (std::int32_t child : children) walk(tree, order, child, rows);
}

TEST(TreeOrder, EveryTreeUpToEightNodes) {
  TreeOrder order;
  std::vector<std::int32_t> expected;
  for (std::int32_t nodes = 1; nodes <= 8; ++nodes) {
    testing::for_each_tree(nodes, [&](const TokenTree& tree) {
      for (ChildOrder child_order : {ChildOrder::drawn, ChildOrder::heavy_path}) {
        order.assign(tree, child_order);
        expected.clear();
        walk(tree, child_order, 0, expected);
        ASSERT_EQ(order.node_of_row, expected);
        ASSERT_EQ(order.rows(), nodes);
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
      }
    });
  }
}

}  // namespace
}  // namespace coppice
