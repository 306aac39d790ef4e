// Every token tree of a given size, for exhaustive tests.
#pragma once

#include <cstdint>
#include <vector>

#include "base/token_tree.h"

namespace coppice::testing {

/// The tree with these parents (entry 0 is -1, every other one points backwards). Node i holds
/// token i; probabilities are 1/8.
inline TokenTree tree_with_parents(const std::vector<std::int32_t>& parents) {
  TokenTree tree;
  tree.reset(0);
  std::vector<std::int32_t> children(parents.size(), 0);
  for (std::size_t i = 1; i < parents.size(); ++i) {
    const auto parent = static_cast<std::size_t>(parents[i]);
    tree.add(parents[i], static_cast<TokenId>(i), children[parent]++, 0.125f, 0.5);
  }
  return tree;
}

/// Calls visit(tree) for every tree of `nodes` nodes in every order in which its nodes can be
/// added: (nodes - 1)! trees.
template <typename Visit>
void for_each_tree(std::int32_t nodes, Visit visit) {
  std::vector<std::int32_t> parents(static_cast<std::size_t>(nodes), 0);
  parents[0] = -1;
  while (true) {
    visit(tree_with_parents(parents));
    std::size_t i = parents.size() - 1;
    while (i > 0 && parents[i] + 1 == static_cast<std::int32_t>(i)) parents[i--] = 0;
    if (i == 0) return;
    ++parents[i];
  }
}

}  // namespace coppice::testing
