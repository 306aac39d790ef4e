// Penalties follow each tree path.
#pragma once

#include <cstdint>

#include "base/token_tree.h"
#include "kernels/logits.h"

namespace coppice {

/// While it lives, `counts` also holds the tokens from below the root down to `node`.
class PathCounts {
 public:
  PathCounts(TokenCounts& counts, const TokenTree& tree, std::int32_t node)
      : counts_(counts), tree_(tree), node_(node) {
    each([this](TokenId token) { counts_.add(token); });
  }
  ~PathCounts() {
    each([this](TokenId token) { counts_.remove(token); });
  }
  PathCounts(const PathCounts&) = delete;
  PathCounts& operator=(const PathCounts&) = delete;

 private:
  template <typename Visit>
  void each(Visit visit) {
    for (auto n = static_cast<std::size_t>(node_); tree_.parent[n] >= 0;
         n = static_cast<std::size_t>(tree_.parent[n])) {
      visit(tree_.token[n]);
    }
  }
  TokenCounts& counts_;
  const TokenTree& tree_;
  std::int32_t node_;
};

}  // namespace coppice
