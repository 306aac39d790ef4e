// The walk of rules that settle the token after a node whatever the tree.
#pragma once

#include <cstdint>

#include "base/token_tree.h"
#include "verify/verifier.h"

namespace coppice {

/// Follows `token_after(node)` from the root while a child holds it; the first that none holds is
/// the bonus.
template <typename TokenAfter>
void follow(const TokenTree& tree, TokenAfter token_after, Verdict& verdict) {
  verdict.path.clear();
  for (std::int32_t node = 0; node >= 0;) {
    verdict.bonus = token_after(node);
    node = tree.child_with(node, verdict.bonus);
    if (node >= 0) verdict.path.push_back(node);
  }
}

}  // namespace coppice
