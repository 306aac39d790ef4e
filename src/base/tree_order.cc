#include "base/tree_order.h"

#include <algorithm>

namespace coppice {

void TreeOrder::assign(std::span<const std::int32_t> parent, ChildOrder order) {
  const std::size_t n = parent.size();
  node_of_row.clear();
  row_of_node.assign(n, 0);
  subtree_rows.assign(n, 0);
  size_of_node_.assign(n, 1);
  // Parents precede children, so one backward sweep sums the subtrees.
  for (std::size_t i = n; i-- > 1;) {
    size_of_node_[static_cast<std::size_t>(parent[i])] += size_of_node_[i];
  }
  first_child_.assign(n, -1);
  last_child_.assign(n, -1);
  next_sibling_.assign(n, -1);
  for (std::size_t i = 1; i < n; ++i) {
    const auto p = static_cast<std::size_t>(parent[i]);
    const auto node = static_cast<std::int32_t>(i);
    if (first_child_[p] < 0) {
      first_child_[p] = node;
    } else {
      next_sibling_[static_cast<std::size_t>(last_child_[p])] = node;
    }
    last_child_[p] = node;
  }
  stack_.assign(1, 0);
  while (!stack_.empty()) {
    const std::int32_t node = stack_.back();
    stack_.pop_back();
    const auto u = static_cast<std::size_t>(node);
    row_of_node[u] = rows();
    subtree_rows[node_of_row.size()] = size_of_node_[u];
    node_of_row.push_back(node);
    const std::size_t base = stack_.size();
    for (std::int32_t c = first_child_[u]; c >= 0; c = next_sibling_[static_cast<std::size_t>(c)]) {
      stack_.push_back(c);
    }
    const auto begin = stack_.begin() + static_cast<std::ptrdiff_t>(base);
    std::reverse(begin, stack_.end());
    if (order == ChildOrder::heavy_path) {
      // Last pushed is visited first; ties keep the drawn order.
      std::stable_sort(begin, stack_.end(), [&](std::int32_t a, std::int32_t b) {
        return size_of_node_[static_cast<std::size_t>(a)] <
               size_of_node_[static_cast<std::size_t>(b)];
      });
    }
  }
}

}  // namespace coppice
