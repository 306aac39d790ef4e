// DeFT-Flatten on a device whose blocks take equal contiguous ranges of the work.
//
// Query heads that share a KV head are packed into rows as in flatten_plan.h. A unit of work is
// one KV head and one row tile; it is cut into KV tiles of range_tile_tokens tokens, those of the
// prefix first. The last ones are taken from what is left of the prefix and the tail tokens that
// the unit sees; how many it sees is not known to the plan, which reckons with a guess, and the
// unit's last tile stands for all that is left.
//
// Row tiles that lie side by side form a gang, run by as many blocks in step, so that keys and
// values are read from memory once for all of them. The KV tiles of all units of a gang's member,
// one unit after the other, are cut into equal ranges, one for each gang of blocks. So a block has
// whole units but for at most two pieces: one that a former gang began, one that a later gang goes
// on with. Only these leave partial results.
//
// All is computed from the pass's sizes, by the same functions on host and device.
#pragma once

#include <cstdint>

#include "kernels/flatten_plan.h"

namespace coppice {

inline constexpr std::int32_t range_tile_tokens = 128;
/// Packed rows of a tile: the wide one where launches have more than the other's.
inline constexpr std::int32_t range_half_tile = 64;
inline constexpr std::int32_t range_wide_tile = 128;

COPPICE_HOST_DEVICE constexpr std::int32_t range_row_tile_for(std::int32_t padded_rows,
                                                              std::int32_t group) {
  return padded_rows * group <= range_half_tile ? range_half_tile : range_wide_tile;
}

/// KV tiles [tile_begin, tile_end) of a unit.
struct RangePiece {
  std::int32_t kv_head = 0;
  std::int32_t row_tile = 0;  ///< may be past the last one, where there is nothing to do
  std::int32_t tile_begin = 0;
  std::int32_t tile_end = 0;
  std::int32_t first_gang = 0;  ///< gangs [first_gang, first_gang + contributors) share the unit
  std::int32_t contributors = 1;
};

/// What a plan takes divisions to find out: made once per pass.
struct RangeCut {
  std::int32_t gang = 1;        ///< row tiles and blocks of a gang
  std::int32_t row_groups = 1;  ///< gang * row_groups >= row tiles
  std::int32_t unit_tiles = 1;
  std::int32_t gangs = 1;  ///< gangs of blocks; gang * gangs <= blocks
};

struct RangePlan : RangeCut {
  std::int32_t rows = 0;  ///< real query rows
  std::int32_t group = 1;
  std::int32_t kv_heads = 1;
  std::int32_t tile_rows = range_wide_tile;
  std::int32_t prefix = 0;
  std::int32_t tail = 0;

  COPPICE_HOST_DEVICE constexpr std::int32_t packed_rows() const { return rows * group; }
  COPPICE_HOST_DEVICE constexpr std::int32_t row_tiles() const {
    return (packed_rows() + tile_rows - 1) / tile_rows;
  }
  COPPICE_HOST_DEVICE constexpr std::int32_t prefix_tiles() const {
    return prefix / range_tile_tokens;
  }
  /// KV tiles of all units of a gang's member. Times gangs, it must fit 32 bits.
  COPPICE_HOST_DEVICE constexpr std::uint32_t work() const {
    return static_cast<std::uint32_t>(kv_heads * row_groups * unit_tiles);
  }
  COPPICE_HOST_DEVICE constexpr std::int32_t range_begin(std::int32_t index) const {
    return static_cast<std::int32_t>(work() * static_cast<std::uint32_t>(index) /
                                     static_cast<std::uint32_t>(gangs));
  }
  /// The gang whose range a KV tile lies in.
  COPPICE_HOST_DEVICE constexpr std::int32_t gang_at(std::int32_t tile) const {
    return static_cast<std::int32_t>(
        ((static_cast<std::uint32_t>(tile) + 1) * static_cast<std::uint32_t>(gangs) - 1) / work());
  }
  /// The piece that starts at `begin` and ends with its unit or at `end`.
  COPPICE_HOST_DEVICE constexpr RangePiece piece(std::int32_t begin, std::int32_t end,
                                                 std::int32_t member) const {
    const std::int32_t unit = begin / unit_tiles;
    const std::int32_t unit_begin = unit * unit_tiles;
    RangePiece piece;
    piece.kv_head = unit / row_groups;
    piece.row_tile = unit % row_groups * gang + member;
    piece.tile_begin = begin - unit_begin;
    piece.tile_end = end - unit_begin < unit_tiles ? end - unit_begin : unit_tiles;
    piece.first_gang = gang_at(unit_begin);
    piece.contributors = gang_at(unit_begin + unit_tiles - 1) - piece.first_gang + 1;
    return piece;
  }
  /// Where a contributor's partial result for a row tile lies, in results of tile_rows rows.
  COPPICE_HOST_DEVICE constexpr std::int32_t partial(std::int32_t gang_index, std::int32_t member,
                                                     bool unit_begins) const {
    return 2 * (gang_index * gang + member) + (unit_begins ? 1 : 0);
  }
  COPPICE_HOST_DEVICE constexpr IndexRange queries_of(std::int32_t row_tile) const {
    const IndexRange real =
        intersection({row_tile * tile_rows, (row_tile + 1) * tile_rows}, {0, packed_rows()});
    return real.empty() ? IndexRange{} : IndexRange{real.begin / group, (real.end - 1) / group + 1};
  }
};

COPPICE_HOST_DEVICE constexpr std::int32_t greatest_common_divisor(std::int32_t a, std::int32_t b) {
  while (b != 0) {
    const std::int32_t rest = a % b;
    a = b;
    b = rest;
  }
  return a;
}

/// The plan of a pass that `blocks` blocks run.
COPPICE_HOST_DEVICE constexpr RangePlan make_range_plan(std::int32_t rows, std::int32_t group,
                                                        std::int32_t kv_heads,
                                                        std::int32_t tile_rows, std::int32_t prefix,
                                                        std::int32_t tail, std::int32_t blocks) {
  // A row tile of a tree in depth-first order sees its own queries' tokens and their ancestors.
  constexpr std::int32_t guessed_ancestors = 24;
  constexpr std::int32_t largest_gang = 12;
  // In KV tiles: what a piece costs besides its tiles, and what joining costs.
  constexpr std::int32_t piece_cost = 3;
  constexpr std::int32_t join_cost = 3;
  RangePlan plan;
  plan.rows = rows;
  plan.group = group;
  plan.kv_heads = kv_heads;
  plan.tile_rows = tile_rows;
  plan.prefix = prefix;
  plan.tail = tail;
  const std::int32_t row_tiles = plan.row_tiles() < 1 ? 1 : plan.row_tiles();
  const std::int32_t tile_queries = tile_rows / group + 1;
  const std::int32_t seen = tile_queries + guessed_ancestors;
  const std::int32_t rest = prefix % range_tile_tokens + (tail < seen ? tail : seen);
  plan.unit_tiles = plan.prefix_tiles() + (rest + range_tile_tokens - 1) / range_tile_tokens;
  if (plan.unit_tiles < 1) plan.unit_tiles = 1;
  // The least time of a block, in KV tiles; among equals the largest gang.
  std::int32_t least_cost = -1;
  for (std::int32_t gang = row_tiles < largest_gang ? row_tiles : largest_gang; gang >= 1; --gang) {
    if (gang > blocks) continue;
    const std::int32_t row_groups = (row_tiles + gang - 1) / gang;
    const std::int32_t units = kv_heads * row_groups;
    const std::int32_t most =
        blocks / gang < units * plan.unit_tiles ? blocks / gang : units * plan.unit_tiles;
    // With fewer gangs, ranges may have parts of fewer units: with gangs * n = units * m in
    // lowest terms, ranges of n / m units begin at multiples of 1 / m.
    const std::int32_t aligned = most / units * units;
    const std::int32_t fewest = most - most / 8;
    for (std::int32_t gangs = most; gangs > 0;
         gangs = gangs > fewest ? gangs - 1 : (gangs > aligned ? aligned : 0)) {
      const std::int32_t tiles = (units * plan.unit_tiles + gangs - 1) / gangs;
      const std::int32_t divisor = greatest_common_divisor(units, gangs);
      const std::int32_t n = units / divisor;
      const std::int32_t m = gangs / divisor;
      const std::int32_t pieces = (n + m - 1 + m - 1) / m;
      const bool joins = m > 1;
      const std::int32_t cost = tiles + pieces * piece_cost + (joins ? join_cost : 0);
      if (least_cost >= 0 && cost >= least_cost) continue;
      least_cost = cost;
      plan.gang = gang;
      plan.row_groups = row_groups;
      plan.gangs = gangs;
    }
  }
  return plan;
}

}  // namespace coppice
