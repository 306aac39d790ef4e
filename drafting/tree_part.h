// A part of a tree as a tree of its own.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token_tree.h"

namespace coppice {

class TreePart {
 public:
  /// Sets `part` to the root of `whole` and these of its nodes, in this order: each behind its
  /// parent. Siblings that are left out leave no gap in the ranks; sources are those of `whole`.
  void copy(const TokenTree& whole, std::span<const std::int32_t> nodes, TokenTree& part);

 private:
  std::vector<std::int32_t> index_;     ///< in `part`, by node of `whole`
  std::vector<std::int32_t> children_;  ///< so far, by node of `whole`
};

}  // namespace coppice
