// How a node of a tree without tokens is named.
#pragma once

#include <cstdint>
#include <vector>

namespace coppice {

/// A node by the sibling ranks that lead to it from the root: {0, 2} is the third child of the
/// root's first child.
using RankPath = std::vector<std::int32_t>;

}  // namespace coppice
