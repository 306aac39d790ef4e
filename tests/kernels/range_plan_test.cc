#include "kernels/range_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <vector>

namespace coppice {
namespace {

struct Planned {
  RangePiece piece;
  std::int32_t gang, member;
};

/// What every block of the plan runs, in its order.
std::vector<std::vector<Planned>> pieces_of(const RangePlan& plan) {
  std::vector<std::vector<Planned>> blocks;
  for (std::int32_t gang = 0; gang < plan.gangs; ++gang) {
    for (std::int32_t member = 0; member < plan.gang; ++member) {
      auto& pieces = blocks.emplace_back();
      const std::int32_t end = plan.range_begin(gang + 1);
      for (std::int32_t at = plan.range_begin(gang); at < end;) {
        const RangePiece piece = plan.piece(at, end, member);
        at += piece.tile_end - piece.tile_begin;
        pieces.push_back({piece, gang, member});
      }
    }
  }
  return blocks;
}

template <typename Visit>
void for_each_plan(Visit visit) {
  for (const std::int32_t group : {1, 3, 4, 7, 8, 16}) {
    for (const std::int32_t kv_heads : {1, 3, 8, 32}) {
      for (const std::int32_t rows : {1, 5, 17, 64, 129, 300, 768, 2048}) {
        for (const std::int32_t prefix : {0, 1, 127, 128, 1000, 4096, 65536}) {
          for (const std::int32_t blocks : {1, 2, 5, 78, 114, 132}) {
            const RangePlan plan = make_range_plan(
                rows, group, kv_heads, range_row_tile_for(rows, group), prefix, rows, blocks);
            SCOPED_TRACE(::testing::Message()
                         << group << " x " << kv_heads << " heads, " << rows << " rows, prefix "
                         << prefix << ", " << blocks << " blocks");
            visit(plan, blocks);
            if (::testing::Test::HasFatalFailure()) return;
          }
        }
      }
    }
  }
}

TEST(RangePlan, PiecesCoverEveryTileOnce) {
  for_each_plan([](const RangePlan& plan, std::int32_t blocks) {
    ASSERT_LE(plan.gang * plan.gangs, blocks);
    ASSERT_GE(plan.gang * plan.row_groups, plan.row_tiles());
    // Pieces of a unit follow one another, gang by gang.
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> covered;
    for (const auto& block : pieces_of(plan)) {
      for (const auto& [piece, gang, member] : block) {
        ASSERT_LT(piece.kv_head, plan.kv_heads);
        ASSERT_LT(piece.tile_begin, piece.tile_end);
        auto& next = covered[{piece.kv_head, piece.row_tile}];
        ASSERT_EQ(piece.tile_begin, next);
        next = piece.tile_end;
      }
    }
    std::int32_t units = 0;
    for (const auto& [unit, tiles] : covered) {
      ASSERT_EQ(tiles, plan.unit_tiles);
      units += unit.second < plan.row_tiles() ? 1 : 0;
    }
    ASSERT_EQ(units, plan.kv_heads * plan.row_tiles());
    ASSERT_GE(plan.unit_tiles, plan.prefix_tiles());
  });
}

TEST(RangePlan, ContributorsAreCountedAndHaveResultsOfTheirOwn) {
  for_each_plan([](const RangePlan& plan, std::int32_t blocks) {
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> contributors;
    std::map<std::int32_t, std::pair<std::int32_t, std::int32_t>> counters;
    std::set<std::int32_t> partials;
    const auto all = pieces_of(plan);
    for (const auto& block : all) {
      std::int32_t shared = 0;
      for (const auto& [piece, gang, member] : block) {
        const std::pair unit{piece.kv_head, piece.row_tile};
        ASSERT_EQ(contributors[unit]++, gang - piece.first_gang);
        if (piece.contributors == 1) {
          ASSERT_EQ(piece.tile_end - piece.tile_begin, plan.unit_tiles);
          continue;
        }
        ++shared;
        const std::int32_t partial = plan.partial(gang, member, piece.tile_begin == 0);
        ASSERT_LT(partial, 2 * blocks);
        ASSERT_TRUE(partials.insert(partial).second);
        // Results are looked up by contributor.
        ASSERT_EQ(piece.tile_begin == 0, gang == piece.first_gang);
        const std::int32_t counter = piece.first_gang * plan.gang + member;
        ASSERT_LT(counter, blocks);
        ASSERT_EQ(counters.emplace(counter, unit).first->second, unit);
      }
      ASSERT_LE(shared, 2);
    }
    for (const auto& block : all) {
      for (const auto& [piece, gang, member] : block) {
        ASSERT_EQ(piece.contributors, (contributors[{piece.kv_head, piece.row_tile}]));
      }
    }
  });
}

TEST(RangePlan, RangesAreEqual) {
  for_each_plan([](const RangePlan& plan, std::int32_t) {
    for (std::int32_t gang = 0; gang < plan.gangs; ++gang) {
      const std::int32_t tiles = plan.range_begin(gang + 1) - plan.range_begin(gang);
      const auto least = static_cast<std::int32_t>(plan.work()) / plan.gangs;
      ASSERT_GE(tiles, least);
      ASSERT_LE(tiles, least + 1);
      ASSERT_EQ(plan.gang_at(plan.range_begin(gang)), gang);
      ASSERT_EQ(plan.gang_at(plan.range_begin(gang + 1) - 1), gang);
    }
  });
}

// The longest range against an even share of all row tiles' work among the blocks.
TEST(RangePlan, BlocksGetAboutEvenShares) {
  for (const std::int32_t prefix : {4096, 16384, 65536}) {
    for (const std::int32_t row_tiles : {1, 2, 3, 4, 5, 6, 7, 8, 16, 24, 48}) {
      const RangePlan plan =
          make_range_plan(32 * row_tiles, 4, 8, range_wide_tile, prefix, 32, 132);
      ASSERT_EQ(plan.row_tiles(), row_tiles);
      const double even = 8.0 * row_tiles * plan.unit_tiles / 132;
      EXPECT_LE(static_cast<double>(plan.work()) / plan.gangs, 1.15 * even + 1)
          << row_tiles << " row tiles, prefix " << prefix;
    }
  }
}

// Where that costs little, ranges begin where units do.
TEST(RangePlan, ShortRangesHaveOneUnit) {
  for (const std::int32_t rows : {32, 64, 128, 256}) {
    const RangePlan plan = make_range_plan(rows, 4, 8, range_wide_tile, 4096, rows, 132);
    for (const auto& pieces : pieces_of(plan)) EXPECT_EQ(pieces.size(), 1u) << rows;
  }
}

}  // namespace
}  // namespace coppice
