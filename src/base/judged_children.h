// The children that a verdict has judged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "base/token_tree.h"

namespace coppice {

/// Visits the draft tokens that the judge examined, visit(node, accepted): children of the root or
/// of an accepted node, in drawn order, up to the one that is accepted. `ends`: the path's last
/// node ended the text, so that its children do not count.
template <typename Visit>
void for_each_judged(const TokenTree& tree, std::span<const std::int32_t> path, bool ends,
                     const Visit& visit) {
  std::int32_t parent = 0;
  for (std::size_t depth = 0; parent >= 0; ++depth) {
    const std::int32_t accepted = depth < path.size() ? path[depth] : -1;
    std::int32_t child = tree.first_child[static_cast<std::size_t>(parent)];
    for (; child >= 0 && child != accepted;
         child = tree.next_sibling[static_cast<std::size_t>(child)]) {
      visit(child, false);
    }
    if (accepted >= 0) visit(accepted, true);
    parent = ends && depth + 1 >= path.size() ? -1 : accepted;
  }
}

}  // namespace coppice
