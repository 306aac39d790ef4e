// Plans of ranges over random tails.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <span>
#include <vector>

#include "base/tree_order.h"
#include "kernels/cuda/attention/range_plan.h"
#include "reference/segments.h"

namespace coppice::testing {

enum class Tail { tree, causal, branches, texts };

/// One token per row, or 100 in branches; some are holes. Texts are of up to 5 rows, each behind 70
/// tokens of its own.
inline std::vector<VisibleKv> make_tail(Tail kind, std::int32_t rows, std::mt19937& random) {
  std::vector<VisibleKv> tail;
  if (kind == Tail::branches) {
    for (std::int32_t at = 0; at < 100 * rows; ++at) tail.push_back({at, at / 100, at / 100 + 1});
    return tail;
  }
  if (kind == Tail::texts) {
    for (std::int32_t first = 0; first < rows; first += 5) {
      const std::int32_t end = std::min(first + 5, rows);
      for (int i = 0; i < 70; ++i) tail.push_back({i, first, end});
      for (std::int32_t row = first; row < end; ++row) tail.push_back({row, row, end});
    }
    return tail;
  }
  TokenTree tree;
  tree.reset(0);
  while (kind == Tail::tree && tree.nodes() < rows) {
    const auto parent = static_cast<std::int32_t>(random() % static_cast<unsigned>(tree.nodes()));
    tree.add(std::max(parent, tree.nodes() - 40), tree.nodes(), 0, 0.5f, 0.5);
  }
  TreeOrder order;
  order.assign(tree);
  for (std::int32_t row = 0; row < rows; ++row) {
    const std::int32_t end =
        kind == Tail::causal ? rows : row + order.subtree_rows[static_cast<std::size_t>(row)];
    tail.push_back({random() % 20 == 0 ? no_slot : row, row, end});
  }
  return tail;
}

struct Planned {
  RangeShares shares;
  std::vector<RowTile> tiles;
  std::vector<BlockRange> ranges;
  const std::vector<VisibleKv>& tail;
  const RangePlan& plan() const { return shares.plan; }
};

inline std::vector<RowTile> room_for_tiles(std::int32_t rows, std::int32_t group) {
  return std::vector<RowTile>(static_cast<std::size_t>(most_range_row_tiles(rows, group)));
}

inline Planned make_planned(std::int32_t rows, std::int32_t group, std::int32_t kv_heads,
                            std::int32_t prefix, const std::vector<VisibleKv>& tail,
                            std::int32_t blocks, RangeTiles tiles = {0, range_tile_tokens}) {
  // Kept, as a pass keeps them: there may be room for thousands of row tiles.
  static RangePlanner planner;
  static std::vector<RowTile> kept;
  const auto most = static_cast<std::size_t>(most_range_row_tiles(rows, group));
  kept.resize(std::max(kept.size(), most));
  const std::span<RowTile> room = std::span(kept).first(most);
  Planned planned{{}, {}, {}, tail};
  planned.ranges.resize(static_cast<std::size_t>(blocks));
  const auto segments = segments_of(tail);
  planned.shares =
      planner.plan({rows, rows, group, kv_heads, prefix, segments}, blocks, tiles, room);
  planned.tiles.assign(room.begin(), room.begin() + planned.plan().row_tiles);
  planned.shares.write_ranges(planned.tiles, planned.ranges);
  return planned;
}

}  // namespace coppice::testing
