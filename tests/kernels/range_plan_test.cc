#include "kernels/cuda/attention/range_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "kernels/range_rig.h"
#include "reference/sanitized.h"

namespace coppice {
namespace {

using testing::make_planned;
using testing::make_tail;
using testing::Planned;
using testing::Tail;

/// What the block runs, unit by unit, as the device does.
std::vector<RangePiece> pieces_of(const RangePlan& plan, const BlockRange& range) {
  std::vector<RangePiece> pieces;
  RangePiece piece = range.first;
  for (std::int32_t step = 0; step <= range.steps; ++step) {
    if (step > 0) plan.advance(piece, range);
    if (step > 0 && step == range.steps) {
      EXPECT_EQ(piece.kv_head, range.last.kv_head);
      EXPECT_EQ(piece.row_tile, range.last.row_tile);
      piece = range.last;
    }
    pieces.push_back(piece);
  }
  return pieces;
}

/// Pieces of every block, and a number for the unit (KV head and row tile) of each.
struct Walk {
  explicit Walk(const Planned& planned)
      : units(planned.plan().kv_heads * planned.plan().row_tiles) {
    for (const BlockRange& range : planned.ranges) {
      pieces.push_back(pieces_of(planned.plan(), range));
    }
  }
  std::vector<std::vector<RangePiece>> pieces;
  std::int32_t units;
};

std::size_t unit_of(const RangePlan& plan, const RangePiece& piece) {
  return static_cast<std::size_t>(piece.kv_head * plan.row_tiles + piece.row_tile);
}

void expect_tiles_covered_once(const Planned& planned, const Walk& walk) {
  const RangePlan& plan = planned.plan();
  std::int32_t next_row = 0;
  for (const RowTile& tile : planned.tiles) {
    ASSERT_EQ(tile.rows.begin, next_row);
    ASSERT_GT(tile.rows.end, next_row);
    ASSERT_LE(tile.rows.end - next_row, plan.tiles.rows);
    next_row = tile.rows.end;
  }
  ASSERT_EQ(next_row, plan.rows * plan.group);
  ASSERT_LE(plan.gang * plan.gangs, std::ssize(planned.ranges));
  ASSERT_GE(plan.gang * plan.row_groups, plan.row_tiles);
  // Pieces of a unit follow one another, gang by gang.
  std::vector<std::int32_t> covered(static_cast<std::size_t>(walk.units), 0);
  for (const std::vector<RangePiece>& pieces : walk.pieces) {
    for (const RangePiece& piece : pieces) {
      ASSERT_LT(piece.kv_head, plan.kv_heads);
      ASSERT_LT(piece.tile_begin, piece.tile_end);
      if (piece.row_tile >= plan.row_tiles) continue;
      // Those that are not whole units of a block come with their rows.
      if (piece.contributors > 1 || &piece == &pieces.front() || &piece == &pieces.back()) {
        const IndexRange rows = planned.tiles[static_cast<std::size_t>(piece.row_tile)].rows;
        ASSERT_EQ(piece.rows.begin, rows.begin);
        ASSERT_EQ(piece.rows.end, rows.end);
      }
      std::int32_t& next = covered[unit_of(plan, piece)];
      ASSERT_EQ(piece.tile_begin, next);
      next = piece.tile_end;
    }
  }
  for (std::int32_t unit = 0; unit < walk.units; ++unit) {
    const RowTile& runs = planned.tiles[static_cast<std::size_t>(unit % plan.row_tiles)];
    ASSERT_GT(covered[static_cast<std::size_t>(unit)], 0);
    ASSERT_GE(covered[static_cast<std::size_t>(unit)], plan.tiles_of(runs));
  }
}

// Blocks walk KV tiles as the kernel does: every row tile meets each token once that it sees.
void expect_tokens_met_once(const Planned& planned, const Walk& walk) {
  const RangePlan& plan = planned.plan();
  const auto tokens = static_cast<std::size_t>(plan.prefix) + planned.tail.size();
  std::vector<std::vector<int>> met(static_cast<std::size_t>(walk.units),
                                    std::vector<int>(tokens, 0));
  for (const std::vector<RangePiece>& pieces : walk.pieces) {
    for (const RangePiece& piece : pieces) {
      if (piece.row_tile >= plan.row_tiles) continue;
      const RowTile& runs = planned.tiles[static_cast<std::size_t>(piece.row_tile)];
      std::vector<int>& of_unit = met[unit_of(plan, piece)];
      const std::int32_t end = std::min(piece.tile_end, plan.tiles_of(runs));
      for (std::int32_t place = piece.tile_begin * plan.tiles.tokens;
           place < std::min(end * plan.tiles.tokens, plan.prefix + runs.seen()); ++place) {
        std::int32_t at = place;
        if (place >= plan.prefix) {
          const std::int32_t rank = place - plan.prefix;
          const auto run = std::upper_bound(runs.end, std::end(runs.end), rank) - runs.end;
          if (rank < runs.first[run]) continue;
          at = plan.prefix + runs.begin[run] + rank - runs.first[run];
        }
        ++of_unit[static_cast<std::size_t>(at)];
      }
    }
  }
  for (std::size_t unit = 0; unit < met.size(); ++unit) {
    const auto row_tile = unit % static_cast<std::size_t>(plan.row_tiles);
    const IndexRange queries = plan.queries_of(planned.tiles[row_tile].rows);
    for (std::int32_t at = 0; at < std::ssize(met[unit]); ++at) {
      const int times = met[unit][static_cast<std::size_t>(at)];
      const bool seen =
          at < plan.prefix ||
          !queries_that_see(planned.tail[static_cast<std::size_t>(at - plan.prefix)], queries)
               .empty();
      ASSERT_LE(times, 1);
      if (seen) {
        ASSERT_EQ(times, 1);
      }
    }
  }
}

void expect_contributors_counted(const Planned& planned, const Walk& walk) {
  const RangePlan& plan = planned.plan();
  const auto blocks = static_cast<std::int32_t>(planned.ranges.size());
  // Units beyond the row tiles, of a last group that is not full, are counted as well.
  const auto unit = [&](const RangePiece& piece) {
    return static_cast<std::size_t>(piece.kv_head * plan.gang * plan.row_groups + piece.row_tile);
  };
  std::vector<std::int32_t> contributors(
      static_cast<std::size_t>(plan.kv_heads * plan.gang * plan.row_groups), 0);
  std::vector<std::ptrdiff_t> counters(static_cast<std::size_t>(blocks), -1);
  std::vector<bool> partials(static_cast<std::size_t>(2 * blocks), false);
  for (std::size_t block = 0; block < planned.ranges.size(); ++block) {
    const BlockRange& range = planned.ranges[block];
    std::int32_t shared = 0;
    for (const RangePiece& piece : walk.pieces[block]) {
      const std::int32_t before = contributors.at(unit(piece))++;
      if (piece.contributors == 1) {
        ASSERT_EQ(piece.tile_begin, 0);
        continue;
      }
      ASSERT_EQ(before, range.gang - piece.first_gang);
      ++shared;
      const std::int32_t partial = plan.partial(range.gang, range.member, piece.tile_begin == 0);
      ASSERT_LT(partial, 2 * blocks);
      ASSERT_FALSE(partials[static_cast<std::size_t>(partial)]);
      partials[static_cast<std::size_t>(partial)] = true;
      // Results are looked up by contributor.
      ASSERT_EQ(piece.tile_begin == 0, range.gang == piece.first_gang);
      const std::int32_t counter = piece.first_gang * plan.gang + range.member;
      ASSERT_LT(counter, blocks);
      std::ptrdiff_t& counted = counters[static_cast<std::size_t>(counter)];
      if (counted < 0) counted = static_cast<std::ptrdiff_t>(unit(piece));
      ASSERT_EQ(counted, static_cast<std::ptrdiff_t>(unit(piece)));
    }
    ASSERT_LE(shared, 2);
  }
  for (const std::vector<RangePiece>& pieces : walk.pieces) {
    for (const RangePiece& piece : pieces) {
      ASSERT_EQ(piece.contributors, contributors[unit(piece)]);
    }
  }
}

void expect_equal_ranges(const RangeShares& shares) {
  for (std::int32_t gang = 0; gang < shares.plan.gangs; ++gang) {
    const std::int64_t tiles = shares.range_begin(gang + 1) - shares.range_begin(gang);
    const std::int64_t least = shares.work() / shares.plan.gangs;
    ASSERT_GE(tiles, least);
    ASSERT_LE(tiles, least + 1);
    ASSERT_EQ(shares.gang_at(shares.range_begin(gang)), gang);
    ASSERT_EQ(shares.gang_at(shares.range_begin(gang + 1) - 1), gang);
  }
}

// 7 divides no number of values below, so that each pair of values is left.
constexpr int every = 7;

// Every tile, contributor and token of plans of all kinds, in one walk over each.
TEST(RangePlan, PlansAreWholeAndEven) {
  std::mt19937 random(1);
  int number = 0, in_detail = 0;
  for (const std::int32_t rows : {1, 5, 17, 64, 129, 300, 768, 2048}) {
    for (const Tail kind : {Tail::tree, Tail::causal, Tail::branches, Tail::texts}) {
      const std::vector<VisibleKv> tail = make_tail(kind, rows, random);
      for (const std::int32_t group : {1, 3, 4, 7, 16}) {
        for (const std::int32_t kv_heads : {1, 3, 8, 32}) {
          for (const std::int32_t prefix : {0, 1, 127, 1000, 65536}) {
            for (const std::int32_t blocks : {1, 5, 78, 132}) {
              for (const std::int32_t tile_tokens : {range_half_tokens, range_tile_tokens}) {
                if (number++ % every != 0) continue;
                const Planned planned =
                    make_planned(rows, group, kv_heads, prefix, tail, blocks, {0, tile_tokens});
                const Walk walk(planned);
                expect_tiles_covered_once(planned, walk);
                expect_contributors_counted(planned, walk);
                expect_equal_ranges(planned.shares);
                if (rows <= 300 && prefix <= 1000 && kv_heads <= 3) {
                  ++in_detail;
                  expect_tokens_met_once(planned, walk);
                }
                ASSERT_FALSE(HasFatalFailure())
                    << group << " x " << kv_heads << " heads, " << rows << " rows, tail "
                    << static_cast<int>(kind) << ", prefix " << prefix << ", " << blocks
                    << " blocks, tiles of " << tile_tokens << " tokens";
              }
            }
          }
        }
      }
    }
  }
  EXPECT_GT(in_detail, number / every / 10);
}

/// The longest range against an even share of all row tiles' work among the blocks.
void expect_even_shares(const Planned& planned) {
  const RangePlan& plan = planned.plan();
  double work = 0.0;
  for (std::int32_t t = 0; t < plan.row_tiles; ++t) {
    work += plan.kv_heads * plan.tiles_of(planned.tiles[static_cast<std::size_t>(t)]);
  }
  const double even = work / static_cast<double>(planned.ranges.size());
  EXPECT_LE(static_cast<double>(planned.shares.work()) / plan.gangs, 1.15 * even + 1)
      << plan.rows << " rows, prefix " << plan.prefix;
}

TEST(RangePlan, BlocksGetAboutEvenShares) {
  std::mt19937 random(3);
  for (const std::int32_t prefix : {4096, 16384, 65536}) {
    for (const std::int32_t row_tiles : {1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 48}) {
      const std::int32_t rows = 32 * row_tiles;
      expect_even_shares(
          make_planned(rows, 4, 8, prefix, make_tail(Tail::tree, rows, random), 132));
    }
  }
  for (const std::int32_t rows : {20, 30, 50, 200}) {
    expect_even_shares(
        make_planned(rows, 4, 8, 4000, make_tail(Tail::branches, rows, random), 132));
  }
}

/// The plan that a pass chooses.
RangePlan chosen(std::int32_t rows, std::int32_t group, std::int32_t kv_heads,
                 std::int32_t prefix) {
  std::mt19937 random(5);
  return make_planned(rows, group, kv_heads, prefix, make_tail(Tail::tree, rows, random), 132, {})
      .plan();
}

// Half tiles where ranges are short, or bound by reading; measured on an H200.
TEST(RangePlan, HalfTilesWherePassesAreShort) {
  EXPECT_EQ(chosen(64, 4, 8, 1024).tiles.tokens, range_half_tokens);
  EXPECT_EQ(chosen(64, 1, 32, 4096).tiles.tokens, range_half_tokens);
  EXPECT_EQ(chosen(1, 4, 8, 16384).tiles.tokens, range_half_tokens);
  EXPECT_EQ(chosen(64, 1, 32, 1400).tiles.tokens, range_half_tokens);
  EXPECT_EQ(chosen(128, 1, 32, 2400).tiles.tokens, range_half_tokens);
  EXPECT_EQ(chosen(64, 4, 8, 65536).tiles.tokens, range_tile_tokens);
  EXPECT_EQ(chosen(256, 4, 8, 4096).tiles.tokens, range_tile_tokens);
  EXPECT_EQ(chosen(64, 1, 32, 65536).tiles.tokens, range_tile_tokens);
}

// Row tiles that would read the same keys from memory by themselves go in step.
TEST(RangePlan, LongPrefixesAreReadByGangs) {
  for (const std::int32_t rows : {256, 768}) {
    EXPECT_GT(chosen(rows, 1, 32, 65536).gang, 1) << rows;
    EXPECT_GT(chosen(rows, 4, 8, 65536).gang, 1) << rows;
  }
}

// Where that costs little, ranges begin where units do.
TEST(RangePlan, ShortRangesHaveOneUnit) {
  std::mt19937 random(4);
  for (const std::int32_t rows : {32, 64, 128, 256}) {
    const std::vector<VisibleKv> tail = make_tail(Tail::causal, rows, random);
    const Planned planned = make_planned(rows, 4, 8, 4096, tail, 132);
    for (const BlockRange& range : planned.ranges) EXPECT_LE(range.steps, 0) << rows;
  }
}

}  // namespace
}  // namespace coppice
