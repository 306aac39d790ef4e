// Depth-first order, in which "who may see this token" is one interval.
#pragma once

#include <cstdint>
#include <vector>

#include "base/token_tree.h"

namespace coppice {

/// Rows of a pass over a token tree, in depth-first preorder, siblings in the order drawn.
///
/// Row 0 is the root. The rows that may attend to row r's token are r and its descendants:
/// exactly [r, r + subtree_rows[r]).
struct TreeOrder {
  std::vector<std::int32_t> node_of_row;
  std::vector<std::int32_t> row_of_node;   ///< -1 for a node that is left out
  std::vector<std::int32_t> subtree_rows;  ///< by row, itself included

  std::int32_t rows() const { return static_cast<std::int32_t>(node_of_row.size()); }

  /// Fills this order from `tree`, reusing its memory.
  void assign(const TokenTree& tree) {
    assign(tree, [](std::int32_t) { return true; });
  }
  /// Fills this order from the root and those nodes that `has` takes: with a node its parent.
  template <typename Has>
  void assign(const TokenTree& tree, const Has& has) {
    node_of_row.clear();
    row_of_node.assign(tree.token.size(), -1);
    const auto first = [&](std::int32_t sibling) {
      while (sibling > 0 && !has(sibling)) {
        sibling = tree.next_sibling[static_cast<std::size_t>(sibling)];
      }
      return sibling;
    };
    for (std::int32_t node = 0; node >= 0;) {
      row_of_node[static_cast<std::size_t>(node)] = rows();
      node_of_row.push_back(node);
      std::int32_t next = first(tree.first_child[static_cast<std::size_t>(node)]);
      for (; next < 0 && node > 0; node = tree.parent[static_cast<std::size_t>(node)]) {
        next = first(tree.next_sibling[static_cast<std::size_t>(node)]);
      }
      node = next;
    }
    sum_subtrees(tree);
  }

 private:
  void sum_subtrees(const TokenTree& tree);
};

}  // namespace coppice
