// DeFT-Flatten on a device whose blocks take equal contiguous ranges of the work.
//
// Query heads that share a KV head are packed into rows as in flatten_plan.h. A unit of work is
// one KV head and one row tile; its KV tokens, the prefix, which all rows see, and then those of
// the tail that some query of the row tile sees, are cut into KV tiles of tile_tokens.
//
// With one text a row tile is full, but for the last one. With several its rows are whole texts, as
// many as it has room for, so that only one row tile reads a text's keys and values; a text of more
// rows than that has several. All row tiles read a prefix that texts share.
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
//
// Invariants of a plan:
// (1) Row tiles divide the packed rows: each row is in one of them.
// (2) gang * row_groups >= row_tiles, and gang * gangs <= blocks.
// (3) The ranges of a gang's member divide the KV tiles of all its units, in order; their lengths
//     differ by one KV tile at most.
// (4) Only the first and the last unit of a block's range may be shared with other blocks, so that
//     a block leaves two partial results at most (partial()).
// (5) A row tile's runs ascend in the tail and do not overlap, there and among its own tokens.
//     Past the last run, `end` is the end of all.
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
/// Packed rows of a tile: with one text the wide one where launches have more than the half one's.
/// The narrow one is for several texts of few rows, and for the larger KV tile.
inline constexpr std::int32_t range_narrow_tile = 16;
inline constexpr std::int32_t range_half_tile = 64;
inline constexpr std::int32_t range_wide_tile = 128;
inline constexpr std::int32_t range_row_tiles[] = {range_narrow_tile, range_half_tile,
                                                   range_wide_tile};
/// Kernels that obey windows and soft caps (`window_or_cap`) have the half KV tile alone, and no
/// narrow row tile.
constexpr bool range_tiles_exist(RangeTiles tiles, bool window_or_cap = false) {
  const bool narrow = tiles.rows == range_narrow_tile;
  const bool half = tiles.tokens == range_half_tokens;
  return window_or_cap ? half && !narrow : !half || !narrow;
}
/// Kernels whose halves may leave KV tiles out.
constexpr bool halves_leave_out(RangeTiles tiles, bool window_or_cap) {
  return tiles.rows == range_wide_tile && !window_or_cap;
}
/// Heads that have kernels of ranges for layers without a rule. All others have those with a window
/// or a soft cap alone, which take heads of up to range_head_dim() elements.
constexpr bool has_plain_ranges(std::int32_t head_dim) { return head_dim == 64 || head_dim == 128; }
/// What ranges compute with for these heads: what lies past the head is 0.
constexpr std::int32_t range_head_dim(std::int32_t head_dim) {
  return head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
}

constexpr std::int32_t range_row_tile_for(std::int32_t padded_rows, std::int32_t group) {
  return padded_rows * group <= range_half_tile ? range_half_tile : range_wide_tile;
}

/// Row tiles of single texts are no more than that.
inline constexpr std::int32_t most_single_texts = 64;

/// Most row tiles of launches for at most `padded_rows` rows: two that lie side by side have more
/// rows together than one has room for, unless each has a few texts. A pass that would need more,
/// as its texts fit ill, has full ones.
constexpr std::int32_t most_range_row_tiles(std::int32_t padded_rows, std::int32_t group) {
  const std::int32_t full = 2 * ((padded_rows * group + range_narrow_tile - 1) / range_narrow_tile);
  const std::int32_t single = padded_rows < most_single_texts ? padded_rows : most_single_texts;
  return full > single ? full : single;
}

/// Neighbouring slots that are copied at once if they begin at a multiple of it, in slots as in
/// the unit.
inline constexpr std::int32_t range_box = 16;

/// A row tile: its rows, and its part of the tail, runs of neighbours that some of its queries see.
/// Where there are more runs than fit, those with the fewest tokens between them are one, so that a
/// run may have tokens that none of the queries sees. Runs lie one behind the other, but before one
/// that begins with a box of slots up to 15 places are left out, so that it is copied at once.
struct alignas(8) RowTile {
  static constexpr std::int32_t most_runs = 32;
  std::int32_t begin[most_runs];  ///< in the tail, a run's first token
  std::int32_t first[most_runs];  ///< the same token among the row tile's
  std::int32_t end[most_runs];    ///< and the run's end there; past the last run: the end of all
  IndexRange rows;                ///< packed rows
  // By a window, else 0.
  IndexRange positions;       ///< that its rows lie at
  std::int32_t prefix_begin;  ///< tokens of the prefix before those that some row sees, in boxes
  /// Tokens among the row tile's before the first segment that begins to be seen by its 65th row or
  /// a later one.
  std::int32_t lower_tokens;

  /// Tokens of the tail, with those left out before runs.
  COPPICE_HOST_DEVICE constexpr std::int32_t seen() const { return end[most_runs - 1]; }
};

/// The order that a unit's KV tiles are read in: those of the prefix evenly among the others.
/// Row tiles find the prefix in the cache, but for the first to come, and their own tokens in
/// memory. One after the other, products would bound the first part and reading the second.
///
/// Among the others, KV tiles that only the upper half of a row tile sees alternate with those
/// before them, of which its lower half sees most: so both consumers have something to do.
class TileOrder {
 public:
  /// `prefix_tiles`: KV tiles that are all of the prefix; `tiles`: of the unit; `lower_tiles`: of
  /// these, before those that the upper half alone sees.
  COPPICE_HOST_DEVICE constexpr TileOrder(std::int32_t prefix_tiles, std::int32_t tiles,
                                          std::int32_t lower_tiles)
      : prefix_tiles_(static_cast<std::uint32_t>(prefix_tiles)) {
    const std::int32_t upper = tiles - lower_tiles, lower = lower_tiles - prefix_tiles;
    alternating_ = lower < upper ? lower : upper;
    if (alternating_ < 0) alternating_ = 0;
    alternating_begin_ = lower - alternating_;
    upper_ = lower;
    if (prefix_tiles_ >> (31 - bits) == 0 && prefix_tiles < tiles) {
      const auto all = static_cast<std::uint32_t>(tiles);
      step_ = ((prefix_tiles_ << bits) + all - 1) / all;
    }
  }
  /// Which KV tile comes at this place; past the unit's last, the place itself.
  COPPICE_HOST_DEVICE constexpr std::int32_t operator[](std::int32_t place) const {
    const std::uint32_t before = prefix_before(static_cast<std::uint32_t>(place));
    const bool of_prefix = prefix_before(static_cast<std::uint32_t>(place) + 1) > before;
    if (of_prefix) return static_cast<std::int32_t>(before);
    std::int32_t other = place - static_cast<std::int32_t>(before);
    const std::int32_t turn = other - alternating_begin_;
    if (turn >= 0 && turn < 2 * alternating_) {
      other = (turn % 2 == 0 ? alternating_begin_ : upper_) + turn / 2;
    }
    return static_cast<std::int32_t>(prefix_tiles_) + other;
  }

 private:
  static constexpr int bits = 15;

  COPPICE_HOST_DEVICE constexpr std::uint32_t prefix_before(std::uint32_t place) const {
    const std::uint64_t before = (std::uint64_t{place} * step_ + (1u << bits) - 1) >> bits;
    return before < prefix_tiles_ ? static_cast<std::uint32_t>(before) : prefix_tiles_;
  }

  std::uint32_t prefix_tiles_;
  std::uint32_t step_ = 1u << bits;  ///< KV tiles of the prefix for each one, in 2^-bits
  // Among the others: where tiles of the two halves begin to alternate, how many tiles of each, and
  // the first of the upper half.
  std::int32_t alternating_begin_ = 0, alternating_ = 0, upper_ = 0;
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
  IndexRange rows;  ///< the row tile's packed rows
};

/// What a block runs: units [first, last], of which the first and the last may be shared.
struct BlockRange {
  std::int32_t gang = 0, member = 0;
  std::int32_t steps = -1;  ///< units after the first; -1: the block has nothing to do
  RangePiece first, last;
};

struct RangeCut {
  std::int32_t row_tiles = 1;
  std::int32_t gang = 1;        ///< number of row tiles and blocks of a gang
  std::int32_t row_groups = 1;  ///< gang * row_groups >= row tiles
  std::int32_t gangs = 1;       ///< gangs of blocks; gang * gangs <= blocks
};

struct RangePlan : RangeCut {
  std::int32_t rows = 0;  ///< real query rows
  std::int32_t group = 1;
  std::int32_t kv_heads = 1;
  RangeTiles tiles;
  std::int32_t prefix = 0;

  /// KV tiles of a unit of this many tokens; one without tokens has one, too.
  COPPICE_HOST_DEVICE constexpr std::int32_t tiles_of(std::int32_t unit_tokens) const {
    const std::int32_t count = (unit_tokens + tiles.tokens - 1) / tiles.tokens;
    return count < 1 ? 1 : count;
  }
  COPPICE_HOST_DEVICE constexpr std::int32_t tiles_of(const RowTile& tile) const {
    return tiles_of(prefix - tile.prefix_begin + tile.seen());
  }
  /// Where a contributor's partial result for a row tile lies, in results of tiles.rows rows;
  /// `unit_begins`: its piece has the unit's first KV tile.
  COPPICE_HOST_DEVICE constexpr std::int32_t partial(std::int32_t gang_index, std::int32_t member,
                                                     bool unit_begins) const {
    return 2 * (gang_index * gang + member) + (unit_begins ? 1 : 0);
  }
  /// Moves `piece` on to the next unit of a block, whole, whose rows are set by whoever knows them.
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
  COPPICE_HOST_DEVICE constexpr IndexRange queries_of(IndexRange packed_rows) const {
    if (packed_rows.empty()) return {};
    return {packed_rows.begin / group, (packed_rows.end - 1) / group + 1};
  }
};

/// A plan and its cut into ranges.
struct RangeShares {
  RangePlan plan;
  std::vector<std::int32_t> unit_ends;  ///< by row group: KV tiles of its unit and those before it
  bool leaves_out = false;  ///< whether halves of row tiles leave out KV tiles that they do not see

  /// KV tiles of all units of a gang's member.
  std::int64_t work() const { return std::int64_t{plan.kv_heads} * unit_ends.back(); }
  std::int64_t range_begin(std::int32_t gang) const { return work() * gang / plan.gangs; }
  /// The gang whose range a KV tile lies in.
  std::int32_t gang_at(std::int64_t tile) const {
    return static_cast<std::int32_t>(((tile + 1) * plan.gangs - 1) / work());
  }
  /// Writes what each block runs; blocks beyond the gangs have nothing to do. `tiles`: the plan's.
  void write_ranges(std::span<const RowTile> tiles, std::span<BlockRange> ranges) const;
};

/// What is to be attended to.
struct RangeWork {
  std::int32_t rows = 0;         ///< real query rows
  std::int32_t padded_rows = 0;  ///< that the launch is made for
  std::int32_t group = 1;
  std::int32_t kv_heads = 1;
  std::int32_t prefix = 0;  ///< KV tokens that every row sees, but for the window
  std::span<const KvSegment> tail;
  bool window_or_cap = false;  ///< some layer that runs by the plan has a window or a soft cap
  // By a window; empty and 0 without.
  std::int32_t window = 0;
  std::int32_t prefix_position = 0;              ///< of the prefix's first token
  std::span<const std::int32_t> positions = {};  ///< of the rows
  std::span<const KvSegment> near_tail = {};     ///< what trim_to_window() leaves of each segment
  /// The tail in depth-first order, if it has another (box_order.h); else empty.
  std::span<const KvSegment> by_row = {};
  std::int32_t asked_gang = 0, asked_gangs = 0;  ///< as in ResidentBlocks

  const KvSegment& near(std::size_t segment) const {
    return near_tail.empty() ? tail[segment] : near_tail[segment];
  }
};

/// Plans passes. Keeps its memory, so that a pass no larger than a former one allocates nothing.
class RangePlanner {
 public:
  /// The plan of a pass that `blocks` blocks run; its row tiles are written to `tiles`, which has
  /// room for most_range_row_tiles(). `asked`: the tiles' sizes; 0: of those that take less time
  /// (measured on an H200), as for those that kernels with a window or a soft cap lack. Takes time
  /// that grows with the segments and the row tiles' runs. Valid until the next call.
  const RangeShares& plan(const RangeWork& work, std::int32_t blocks, RangeTiles asked,
                          std::span<RowTile> tiles);

  /// Scratch memory of longest_span().
  std::vector<IndexRange>& spans() { return spans_; }

  bool aligns_nothing = false;  ///< planted fault: runs begin where the ones before end

 private:
  std::int64_t cut(const RangeWork& work, RangePlan plan, std::span<const RowTile> tiles,
                   std::int32_t blocks, RangeShares& result);
  void find_texts(const RangeWork& work);
  std::int32_t cut_rows(const RangeWork& work, std::int32_t tile_rows, std::int32_t most_texts,
                        std::span<RowTile> tiles) const;
  void place_rows(const RangeWork& work, std::span<RowTile> tiles) const;
  void find_tail_runs(const RangeWork& work, std::span<RowTile> tiles);
  std::int64_t left_out(const RangePlan& plan, std::span<const RowTile> tiles) const;

  enum class Halves { both, lower, upper };
  /// In a row tile of 128, tokens in KV tiles that one half leaves out.
  struct LeftOut {
    std::int32_t of_half_tiles = 0, of_whole_tiles = 0;  ///< by the KV tile's size
    std::int32_t stretch = 0;                            ///< tokens that one half saw alone last
    Halves last = Halves::both;                          ///< who saw the last tokens

    void add(Halves seen_by, std::int32_t tokens);
  };

  std::vector<IndexRange> texts_;          ///< query rows of each
  std::int32_t most_texts_ = 1;            ///< of a row tile
  std::vector<std::int32_t> joints_;       ///< query rows that former tokens begin to be seen by
  std::vector<std::int32_t> run_counts_;   ///< by row tile
  std::vector<std::int32_t> upper_begin_;  ///< by row tile: in the tail, its upper half's tokens
  std::vector<LeftOut> left_out_;          ///< by row tile
  std::vector<IndexRange> tiles_of_;       ///< by query: row tiles that have rows of it
  std::vector<std::int32_t> lengths_;      ///< by row tile: KV tiles of its unit
  std::vector<RowTile> tried_;
  RangeShares trial_, best_;
  std::vector<IndexRange> spans_;
};

}  // namespace coppice
