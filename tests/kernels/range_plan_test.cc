#include "kernels/cuda/attention/range_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "kernels/range_rig.h"

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

template <typename Visit>
void for_each_plan(Visit visit) {
  std::mt19937 random(1);
  for (const std::int32_t rows : {1, 5, 17, 64, 129, 300, 768, 2048}) {
    for (const Tail kind : {Tail::tree, Tail::causal, Tail::branches, Tail::texts}) {
      const std::vector<VisibleKv> tail = make_tail(kind, rows, random);
      for (const std::int32_t group : {1, 3, 4, 7, 16}) {
        for (const std::int32_t kv_heads : {1, 3, 8, 32}) {
          for (const std::int32_t prefix : {0, 1, 127, 1000, 65536}) {
            for (const std::int32_t blocks : {1, 5, 78, 132}) {
              SCOPED_TRACE(::testing::Message()
                           << group << " x " << kv_heads << " heads, " << rows << " rows, tail "
                           << static_cast<int>(kind) << ", prefix " << prefix << ", " << blocks
                           << " blocks");
              for (const std::int32_t tile_tokens : {range_half_tokens, range_tile_tokens}) {
                visit(make_planned(rows, group, kv_heads, prefix, tail, blocks, {0, tile_tokens}));
                if (::testing::Test::HasFatalFailure()) return;
              }
            }
          }
        }
      }
    }
  }
}

TEST(RangePlan, PiecesCoverEveryTileOnce) {
  for_each_plan([](const Planned& planned) {
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
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> covered;
    for (const BlockRange& range : planned.ranges) {
      const std::vector<RangePiece> pieces = pieces_of(plan, range);
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
        auto& next = covered[{piece.kv_head, piece.row_tile}];
        ASSERT_EQ(piece.tile_begin, next);
        next = piece.tile_end;
      }
    }
    ASSERT_EQ(std::ssize(covered), plan.kv_heads * plan.row_tiles);
    for (const auto& [unit, end] : covered) {
      const RowTile& runs = planned.tiles[static_cast<std::size_t>(unit.second)];
      ASSERT_GE(end, plan.tiles_of(runs.seen()));
    }
  });
}

// Blocks walk KV tiles as the kernel does: every row tile meets each token once that it sees.
TEST(RangePlan, TokensAreMetOnce) {
  for_each_plan([](const Planned& planned) {
    const RangePlan& plan = planned.plan();
    if (plan.rows > 300 || plan.prefix > 1000 || plan.kv_heads > 3) return;
    std::vector<std::vector<int>> met(
        static_cast<std::size_t>(plan.kv_heads * plan.row_tiles),
        std::vector<int>(static_cast<std::size_t>(plan.prefix) + planned.tail.size(), 0));
    for (const BlockRange& range : planned.ranges) {
      for (const RangePiece& piece : pieces_of(plan, range)) {
        if (piece.row_tile >= plan.row_tiles) continue;
        const RowTile& runs = planned.tiles[static_cast<std::size_t>(piece.row_tile)];
        auto& of_unit =
            met[static_cast<std::size_t>(piece.kv_head * plan.row_tiles + piece.row_tile)];
        const std::int32_t tokens = plan.prefix + runs.seen();
        const std::int32_t end = std::min(piece.tile_end, plan.tiles_of(runs.seen()));
        for (std::int32_t place = piece.tile_begin * plan.tiles.tokens;
             place < std::min(end * plan.tiles.tokens, tokens); ++place) {
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
      const auto row_tile = static_cast<std::int32_t>(unit) % plan.row_tiles;
      for (std::int32_t at = 0; at < std::ssize(met[unit]); ++at) {
        const int times = met[unit][static_cast<std::size_t>(at)];
        ASSERT_LE(times, 1);
        const bool seen =
            at < plan.prefix ||
            !queries_that_see(
                 planned.tail[static_cast<std::size_t>(at - plan.prefix)],
                 plan.queries_of(planned.tiles[static_cast<std::size_t>(row_tile)].rows))
                 .empty();
        if (seen) {
          ASSERT_EQ(times, 1);
        }
      }
    }
  });
}

TEST(RangePlan, ContributorsAreCountedAndHaveResultsOfTheirOwn) {
  for_each_plan([](const Planned& planned) {
    const RangePlan& plan = planned.plan();
    const std::int64_t blocks = std::ssize(planned.ranges);
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> contributors;
    std::map<std::int32_t, std::pair<std::int32_t, std::int32_t>> counters;
    std::set<std::int32_t> partials;
    for (const BlockRange& range : planned.ranges) {
      std::int32_t shared = 0;
      for (const RangePiece& piece : pieces_of(plan, range)) {
        const std::pair unit{piece.kv_head, piece.row_tile};
        const std::int32_t before = contributors[unit]++;
        if (piece.contributors == 1) {
          ASSERT_EQ(piece.tile_begin, 0);
          continue;
        }
        ASSERT_EQ(before, range.gang - piece.first_gang);
        ++shared;
        const std::int32_t partial = plan.partial(range.gang, range.member, piece.tile_begin == 0);
        ASSERT_LT(partial, 2 * blocks);
        ASSERT_TRUE(partials.insert(partial).second);
        // Results are looked up by contributor.
        ASSERT_EQ(piece.tile_begin == 0, range.gang == piece.first_gang);
        const std::int32_t counter = piece.first_gang * plan.gang + range.member;
        ASSERT_LT(counter, blocks);
        ASSERT_EQ(counters.emplace(counter, unit).first->second, unit);
      }
      ASSERT_LE(shared, 2);
    }
    for (const BlockRange& range : planned.ranges) {
      for (const RangePiece& piece : pieces_of(plan, range)) {
        ASSERT_EQ(piece.contributors, (contributors[{piece.kv_head, piece.row_tile}]));
      }
    }
  });
}

TEST(RangePlan, RangesAreEqual) {
  for_each_plan([](const Planned& planned) {
    const RangeShares& shares = planned.shares;
    for (std::int32_t gang = 0; gang < shares.plan.gangs; ++gang) {
      const std::int64_t tiles = shares.range_begin(gang + 1) - shares.range_begin(gang);
      const std::int64_t least = shares.work() / shares.plan.gangs;
      ASSERT_GE(tiles, least);
      ASSERT_LE(tiles, least + 1);
      ASSERT_EQ(shares.gang_at(shares.range_begin(gang)), gang);
      ASSERT_EQ(shares.gang_at(shares.range_begin(gang + 1) - 1), gang);
    }
  });
}

/// The longest range against an even share of all row tiles' work among the blocks.
void expect_even_shares(const Planned& planned) {
  const RangePlan& plan = planned.plan();
  double work = 0.0;
  for (std::int32_t t = 0; t < plan.row_tiles; ++t) {
    work += plan.kv_heads * plan.tiles_of(planned.tiles[static_cast<std::size_t>(t)].seen());
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
