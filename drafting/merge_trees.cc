#include "drafting/merge_trees.h"

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "drafting/any_tree.h"

namespace coppice {

TokenTree merge_trees(std::span<const TokenTree> trees, ChildDraw draw) {
  require_any_tree_exact("merging token trees", draw);
  if (trees.empty()) throw_usage("merging token trees: none given");
  TokenTree merged;
  merged.reset(trees[0].token[0]);
  std::vector<std::int32_t> children(1, 0);              // by merged node
  std::unordered_map<std::uint64_t, std::int32_t> held;  // merged node by (parent, token)
  std::vector<std::int32_t> place;                       // merged node by the tree's node
  for (const TokenTree& tree : trees) {
    if (tree.token[0] != merged.token[0]) {
      throw_usage(cat("merging token trees: roots ", merged.token[0], " and ", tree.token[0],
                      "; all trees must grow from one token"));
    }
    place.assign(1, 0);
    for (std::size_t i = 1; i < tree.token.size(); ++i) {
      const std::int32_t parent = place[static_cast<std::size_t>(tree.parent[i])];
      const std::uint64_t key = static_cast<std::uint64_t>(static_cast<std::uint32_t>(parent))
                                    << 32 |
                                static_cast<std::uint32_t>(tree.token[i]);
      const auto [at, is_new] = held.try_emplace(key, merged.nodes());
      if (is_new) {
        merged.add(parent, tree.token[i], children[static_cast<std::size_t>(parent)]++,
                   tree.draft_prob[i], tree.value[i]);
        children.push_back(0);
      }
      place.push_back(at->second);
    }
  }
  return merged;
}

}  // namespace coppice
