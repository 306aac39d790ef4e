// Depth-first order, in which "who may see this token" is one interval.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token_tree.h"

namespace coppice {

enum class ChildOrder {
  drawn,       ///< siblings in the order drawn
  heavy_path,  ///< larger subtree first (DySpec, appendix C)
};

/// Rows of a verify pass over a token tree, in depth-first preorder.
///
/// Row 0 is the root. The rows that may attend to row r's token are r and its descendants:
/// exactly [r, r + subtree_rows[r]).
struct TreeOrder {
  std::vector<std::int32_t> node_of_row;
  std::vector<std::int32_t> row_of_node;
  std::vector<std::int32_t> subtree_rows;  ///< by row, itself included

  std::int32_t rows() const { return static_cast<std::int32_t>(node_of_row.size()); }

  /// Fills this order from `tree`, reusing its memory.
  void assign(const TokenTree& tree, ChildOrder order = ChildOrder::drawn) {
    assign(tree.parent, order);
  }
  /// From the nodes' parents, which precede them (-1 for the root, node 0).
  void assign(std::span<const std::int32_t> parent, ChildOrder order = ChildOrder::drawn);

 private:
  std::vector<std::int32_t> first_child_, next_sibling_, last_child_, stack_, size_of_node_;
};

}  // namespace coppice
