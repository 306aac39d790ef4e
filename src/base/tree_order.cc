#include "base/tree_order.h"

namespace coppice {

void TreeOrder::sum_subtrees(const TokenTree& tree) {
  subtree_rows.assign(node_of_row.size(), 1);
  for (std::size_t row = node_of_row.size(); row-- > 1;) {
    const std::int32_t above = tree.parent[static_cast<std::size_t>(node_of_row[row])];
    const std::int32_t of = row_of_node[static_cast<std::size_t>(above)];
    subtree_rows[static_cast<std::size_t>(of)] += subtree_rows[row];
  }
}

}  // namespace coppice
