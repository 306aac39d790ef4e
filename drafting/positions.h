// The order in which positions enter a tree.
#pragma once

#include <cstdint>

#include "base/token_tree.h"

namespace coppice {

/// A sampling position: the place of a parent's child of some rank. It exists before its token
/// is drawn, and its value (drafting/position_values.h) depends on ancestors and earlier siblings
/// alone.
struct Position {
  double value = 0.0;
  std::int32_t depth = 0;
  std::int32_t parent = -1;
  std::int32_t rank = 0;
  std::int32_t node = -1;  ///< that holds its token; -1: not drawn
};

/// Total order of positions: larger value first; among equals the shallower one, then the
/// lexicographically smaller path of sibling ranks. It looks at no token, and puts ancestors
/// and earlier siblings first (their values are no smaller). Costs O(1) unless values tie.
inline bool before(const TokenTree& candidates, const Position& a, const Position& b) {
  if (a.value != b.value) return a.value > b.value;
  if (a.depth != b.depth) return a.depth < b.depth;
  std::int32_t a_parent = a.parent, a_rank = a.rank;
  std::int32_t b_parent = b.parent, b_rank = b.rank;
  while (a_parent != b_parent) {
    a_rank = candidates.rank[static_cast<std::size_t>(a_parent)];
    a_parent = candidates.parent[static_cast<std::size_t>(a_parent)];
    b_rank = candidates.rank[static_cast<std::size_t>(b_parent)];
    b_parent = candidates.parent[static_cast<std::size_t>(b_parent)];
  }
  return a_rank < b_rank;
}

}  // namespace coppice
