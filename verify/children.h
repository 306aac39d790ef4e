// Children of a tree's nodes, in drawn order.
#pragma once

#include <cstdint>
#include <vector>

#include "base/token_tree.h"
#include "verify/verifier.h"

namespace coppice {

/// First child and next sibling by node, -1 where there is none. Reuses its memory.
struct ChildLinks {
  std::vector<std::int32_t> first;
  std::vector<std::int32_t> next;

  void assign(const TokenTree& tree) {
    const auto nodes = static_cast<std::size_t>(tree.nodes());
    first.assign(nodes, -1);
    next.assign(nodes, -1);
    // Siblings stand in drawn order, so backwards each one is put in front.
    for (std::size_t i = nodes; i-- > 1;) {
      const auto parent = static_cast<std::size_t>(tree.parent[i]);
      next[i] = first[parent];
      first[parent] = static_cast<std::int32_t>(i);
    }
  }

  std::int32_t first_child(std::int32_t node) const {
    return first[static_cast<std::size_t>(node)];
  }
  std::int32_t next_sibling(std::int32_t node) const {
    return next[static_cast<std::size_t>(node)];
  }

  /// The child of `node` with this token, -1 if there is none.
  std::int32_t child_with(const TokenTree& tree, std::int32_t node, TokenId token) const {
    std::int32_t child = first_child(node);
    while (child >= 0 && tree.token[static_cast<std::size_t>(child)] != token) {
      child = next_sibling(child);
    }
    return child;
  }
};

/// The verdict where the token after each node is settled, whatever the tree: follows
/// `token_after(node)` from the root while a child holds it; the first that none holds is the
/// bonus.
template <typename TokenAfter>
void follow(const TokenTree& tree, ChildLinks& links, TokenAfter token_after, Verdict& verdict) {
  links.assign(tree);
  verdict.path.clear();
  for (std::int32_t node = 0; node >= 0;) {
    verdict.bonus = token_after(node);
    node = links.child_with(tree, node, verdict.bonus);
    if (node >= 0) verdict.path.push_back(node);
  }
}

}  // namespace coppice
