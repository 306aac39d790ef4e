// DeFT-Flatten on a device whose blocks take equal contiguous ranges of the work.
//
// Query heads that share a KV head are packed into rows as in flatten_plan.h. A unit of work is
// one KV head and one row tile; its KV tokens, the prefix, which all rows see, and then those of
// the tail that some query of the row tile sees, are cut into KV tiles of tile_tokens.
//
// Row tiles that lie side by side form a gang, run by as many blocks side by side, so that keys and
// values are read from memory once for all of them (nothing keeps the blocks in step: those that
// come later find keys in the cache); its units are counted as long as the longest. The KV tiles of
// all units of a gang's member, one unit after the other, are cut into equal ranges, one for each
// gang of blocks. So a block has whole units but for at most two pieces: one
// that a former gang began, one that a later gang goes on with. Only these leave partial results.
//
// The host makes the plan and writes out, for every block, its range, and for every row tile,
// where in the tail the tokens lie that it sees.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "kernels/cuda/attention/flatten_plan.h"

namespace coppice {

/// KV tokens of a tile: half where the plan thinks that more even ranges pay.
inline constexpr std::int32_t range_tile_tokens = 128;
inline constexpr std::int32_t range_half_tokens = 64;
/// The KV tile of a kernel that takes ranges.
constexpr std::int32_t range_tokens_of(AttentionKernel kernel) {
  return kernel == AttentionKernel::ranges ? range_tile_tokens : range_half_tokens;
}
/// Packed rows of a tile: the wide one where launches have more than the other's.
inline constexpr std::int32_t range_half_tile = 64;
inline constexpr std::int32_t range_wide_tile = 128;

COPPICE_HOST_DEVICE constexpr std::int32_t range_row_tile_for(std::int32_t padded_rows,
                                                              std::int32_t group) {
  return padded_rows * group <= range_half_tile ? range_half_tile : range_wide_tile;
}

/// Row tiles of launches for at most `padded_rows` rows.
constexpr std::int32_t most_range_row_tiles(std::int32_t padded_rows, std::int32_t group) {
  return (padded_rows * group + range_wide_tile - 1) / range_wide_tile;
}

/// A row tile's part of the tail: runs of neighbours that some of its queries see. Where there
/// are more runs than fit, those with the fewest tokens between them are one, so that a run may
/// have tokens that none of the queries sees.
struct TailRuns {
  static constexpr std::int32_t most = 32;
  std::int32_t begin[most];       ///< place in the tail of a run's first token
  std::int32_t seen_up_to[most];  ///< tokens of this run and all before it; past the last: of all

  COPPICE_HOST_DEVICE constexpr std::int32_t seen() const { return seen_up_to[most - 1]; }
};

/// The rest of a unit, however long it is.
inline constexpr std::int32_t unit_end = std::numeric_limits<std::int32_t>::max();

/// KV tiles [tile_begin, tile_end) of a unit; its own tiles may end before.
struct RangePiece {
  std::int32_t kv_head = 0;
  std::int32_t row_tile = 0;  ///< may be past the last one, where there is nothing to do
  std::int32_t tile_begin = 0;
  std::int32_t tile_end = 0;
  std::int32_t first_gang = 0;  ///< gangs [first_gang, first_gang + contributors) share the unit
  std::int32_t contributors = 1;
};

/// What a block runs: units [first, last], of which the first and the last may be shared.
struct BlockRange {
  std::int32_t gang = 0, member = 0;
  std::int32_t steps = -1;  ///< units after the first; -1: the block has nothing to do
  RangePiece first, last;
};

struct RangeCut {
  std::int32_t gang = 1;        ///< number of row tiles and blocks of a gang
  std::int32_t row_groups = 1;  ///< gang * row_groups >= row tiles
  std::int32_t gangs = 1;       ///< gangs of blocks; gang * gangs <= blocks
};

struct RangePlan : RangeCut {
  std::int32_t rows = 0;  ///< real query rows
  std::int32_t group = 1;
  std::int32_t kv_heads = 1;
  std::int32_t tile_rows = range_wide_tile;
  std::int32_t tile_tokens = range_tile_tokens;
  std::int32_t prefix = 0;

  COPPICE_HOST_DEVICE constexpr std::int32_t packed_rows() const { return rows * group; }
  COPPICE_HOST_DEVICE constexpr std::int32_t row_tiles() const {
    return (packed_rows() + tile_rows - 1) / tile_rows;
  }
  /// KV tiles of a unit whose row tile sees this many tail tokens; a unit without tokens has one.
  COPPICE_HOST_DEVICE constexpr std::int32_t tiles_of(std::int32_t seen_tail) const {
    const std::int32_t tiles = (prefix + seen_tail + tile_tokens - 1) / tile_tokens;
    return tiles < 1 ? 1 : tiles;
  }
  /// Where a contributor's partial result for a row tile lies, in results of tile_rows rows;
  /// `unit_begins`: its piece has the unit's first KV tile.
  COPPICE_HOST_DEVICE constexpr std::int32_t partial(std::int32_t gang_index, std::int32_t member,
                                                     bool unit_begins) const {
    return 2 * (gang_index * gang + member) + (unit_begins ? 1 : 0);
  }
  /// Moves `piece` on to the next unit of a block, whole.
  COPPICE_HOST_DEVICE constexpr void advance(RangePiece& piece, const BlockRange& range) const {
    piece.row_tile += gang;
    if (piece.row_tile >= row_groups * gang) {
      piece.row_tile = range.member;
      ++piece.kv_head;
    }
    piece.tile_begin = 0;
    piece.tile_end = unit_end;
    piece.contributors = 1;
  }
  COPPICE_HOST_DEVICE constexpr IndexRange queries_of(std::int32_t row_tile) const {
    const IndexRange real =
        intersection({row_tile * tile_rows, (row_tile + 1) * tile_rows}, {0, packed_rows()});
    return real.empty() ? IndexRange{} : IndexRange{real.begin / group, (real.end - 1) / group + 1};
  }
};

/// A plan and its cut into ranges.
struct RangeShares {
  RangePlan plan;
  std::vector<std::int32_t> unit_ends;  ///< by row group: KV tiles of its unit and those before it

  /// KV tiles of all units of a gang's member.
  std::int64_t work() const { return std::int64_t{plan.kv_heads} * unit_ends.back(); }
  std::int64_t range_begin(std::int32_t gang) const { return work() * gang / plan.gangs; }
  /// The gang whose range a KV tile lies in.
  std::int32_t gang_at(std::int64_t tile) const {
    return static_cast<std::int32_t>(((tile + 1) * plan.gangs - 1) / work());
  }
  /// Writes what each block runs; blocks beyond the gangs have nothing to do.
  void write_ranges(std::span<BlockRange> ranges) const;
};

/// Plans passes. Keeps its memory, so that a pass no larger than a former one allocates nothing.
class RangePlanner {
 public:
  /// Finds the runs of all row tiles of a pass, in time that grows with the segments, which are the
  /// tail's one after the other, and with the runs. Holes count as seen, but for a segment that is
  /// nothing else.
  void find_tail_runs(std::span<const KvSegment> tail, std::int32_t rows, std::int32_t group,
                      std::int32_t tile_rows, std::span<TailRuns> runs);

  /// The plan of a pass that `blocks` blocks run, with KV tiles of range_tile_tokens or
  /// range_half_tokens; 0: of those that take less time (measured on an H200). Valid until the next
  /// call.
  const RangeShares& plan(std::int32_t rows, std::int32_t group, std::int32_t kv_heads,
                          std::int32_t tile_rows, std::int32_t prefix,
                          std::span<const TailRuns> runs, std::int32_t blocks,
                          std::int32_t tile_tokens = 0);

  /// Scratch memory of longest_span().
  std::vector<IndexRange>& spans() { return spans_; }

 private:
  std::int64_t cut(RangePlan plan, std::span<const TailRuns> runs, std::int32_t blocks,
                   RangeShares& result);

  std::vector<std::int32_t> run_counts_;  ///< by row tile
  std::vector<std::int32_t> tiles_;       ///< by row tile: KV tiles of its unit
  RangeShares half_, whole_;
  std::vector<IndexRange> spans_;
};

}  // namespace coppice
