#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "kernels/cuda/attention/range_plan.h"
#include "kernels/range_rig.h"

namespace coppice {
namespace {

using testing::make_planned;
using testing::make_tail;
using testing::Planned;
using testing::room_for_tiles;
using testing::Tail;

// Every row tile's runs have each token once that it sees, in order.
TEST(RowTiles, RunsHaveWhatIsSeen) {
  std::mt19937 random(2);
  for (const std::int32_t rows : {1, 17, 64, 300, 1000}) {
    for (const Tail kind : {Tail::tree, Tail::causal, Tail::branches, Tail::texts}) {
      const std::vector<VisibleKv> tail = make_tail(kind, rows, random);
      for (const std::int32_t group : {1, 3, 4, 16}) {
        const Planned planned = make_planned(rows, group, 1, 0, tail, 132);
        for (const RowTile& runs : planned.tiles) {
          std::vector<std::int32_t> listed;
          for (std::int32_t i = 0; i < RowTile::most_runs; ++i) {
            ASSERT_EQ(runs.first[i], i == 0 ? 0 : runs.end[i - 1]);
            for (std::int32_t rank = runs.first[i]; rank < runs.end[i]; ++rank) {
              const std::int32_t at = runs.begin[i] + rank - runs.first[i];
              ASSERT_TRUE(listed.empty() || at > listed.back());
              listed.push_back(at);
            }
          }
          ASSERT_EQ(std::ssize(listed), runs.seen());
          std::vector<std::int32_t> seen;
          for (std::int32_t at = 0; at < std::ssize(tail); ++at) {
            const VisibleKv& token = tail[static_cast<std::size_t>(at)];
            const IndexRange queries = planned.plan().queries_of(runs.rows);
            if (!queries_that_see(token, queries).empty()) seen.push_back(at);
          }
          ASSERT_TRUE(std::includes(listed.begin(), listed.end(), seen.begin(), seen.end()))
              << rows << " rows, group " << group << ", row tile from " << runs.rows.begin;
          if (kind == Tail::branches || kind == Tail::texts) {
            ASSERT_EQ(listed, seen);
          }
        }
      }
    }
  }
}

// Tokens that the same rows see may come as one segment.
TEST(RowTiles, SegmentsAreTheirTokens) {
  std::mt19937 random(3);
  for (const Tail kind : {Tail::causal, Tail::branches, Tail::texts}) {
    std::vector<VisibleKv> tail = make_tail(kind, 200, random);
    std::vector<KvSlot> slots;
    for (VisibleKv& token : tail) slots.push_back(token.slot = std::abs(token.slot));
    std::vector<KvSegment> segments;
    for (std::size_t begin = 0, end = 0; begin < tail.size(); begin = end) {
      while (end < tail.size() && tail[end].q_begin == tail[begin].q_begin &&
             tail[end].q_end == tail[begin].q_end) {
        ++end;
      }
      segments.push_back({std::span<const KvSlot>(slots).subspan(begin, end - begin),
                          tail[begin].q_begin, tail[begin].q_end, false, 0});
    }
    for (const std::int32_t group : {1, 4}) {
      const Planned one_by_one = make_planned(200, group, 8, 0, tail, 132, {});
      std::vector<RowTile> by_segments = room_for_tiles(200, group);
      const RangePlan plan =
          RangePlanner().plan({200, 200, group, 8, 0, segments}, 132, {}, by_segments).plan;
      ASSERT_EQ(plan.row_tiles, one_by_one.plan().row_tiles);
      ASSERT_EQ(plan.tiles, one_by_one.plan().tiles);
      for (std::size_t tile = 0; tile < one_by_one.tiles.size(); ++tile) {
        const RowTile &a = one_by_one.tiles[tile], &b = by_segments[tile];
        EXPECT_EQ(a.rows.begin, b.rows.begin);
        EXPECT_EQ(a.rows.end, b.rows.end);
        EXPECT_TRUE(std::equal(a.begin, std::end(a.begin), b.begin));
        EXPECT_TRUE(std::equal(a.first, std::end(a.first), b.first));
        EXPECT_TRUE(std::equal(a.end, std::end(a.end), b.end));
      }
    }
  }
}

// What a text has from before begins at a place of a unit where its slots can be copied as boxes.
TEST(RowTiles, FormerTokensAreAligned) {
  std::vector<KvSlot> slots(1000);
  std::iota(slots.begin(), slots.end(), 5);
  const std::span<const KvSlot> all = slots;
  std::vector<KvSegment> tail;
  for (std::int32_t text = 0; text < 6; ++text) {
    // 133 tokens each: no multiple of a box. The last text has too few to be worth it.
    const std::size_t begin = 133 * static_cast<std::size_t>(text);
    tail.push_back({all.subspan(begin, text < 5 ? 131 : 10), 2 * text, 2 * text + 2, true, 0});
    tail.push_back({all.subspan(begin + 131, 1), 2 * text, 2 * text + 2, false, 0});
    tail.push_back({all.subspan(begin + 132, 1), 2 * text + 1, 2 * text + 2, false, 0});
  }
  for (const std::int32_t prefix : {0, 3}) {
    std::vector<RowTile> tiles = room_for_tiles(12, 1);
    RangePlanner planner;
    const RangePlan plan = planner.plan({12, 12, 1, 4, prefix, tail}, 132, {}, tiles).plan;
    ASSERT_EQ(plan.row_tiles, 1);
    for (std::int32_t text = 0; text < 5; ++text) {
      const std::int32_t place = prefix + tiles[0].first[text];
      EXPECT_EQ(tiles[0].begin[text], 133 * text);
      EXPECT_EQ(place % range_box, (5 + 133 * text) % range_box);
      EXPECT_LT(tiles[0].first[text] - (text == 0 ? 0 : tiles[0].end[text - 1]), range_box);
    }
    EXPECT_EQ(tiles[0].end[4] - tiles[0].first[4], 133 + 12);
    EXPECT_EQ(tiles[0].seen(), tiles[0].end[4]);
  }
}

// More runs than there is room for: those that lie closest become one.
TEST(RowTiles, CloseRunsAreJoined) {
  std::vector<VisibleKv> tail;
  std::int32_t seen = 0;
  for (std::int32_t run = 0; run < 50; ++run) {
    const std::int32_t apart = run % 2 == 0 ? 100 : 1;
    for (std::int32_t i = 0; i < apart; ++i) tail.push_back({0, 40, 64});
    for (std::int32_t i = 0; i < 10; ++i) tail.push_back({0, 0, 1});
    seen += 10;
  }
  const RowTile first = make_planned(64, 4, 8, 0, tail, 132).tiles[0];
  EXPECT_GE(first.seen(), seen);
  EXPECT_LE(first.seen(), seen + 25);
}

// Then each text's keys are read once, if it has no more rows than a tile.
TEST(RowTiles, HaveWholeTexts) {
  std::mt19937 random(8);
  for (const std::int32_t group : {1, 3, 4, 7, 16, 33, 100}) {
    for (const std::int32_t rows : {6, 64, 300}) {
      const std::vector<VisibleKv> tail = make_tail(Tail::texts, rows, random);
      for (const std::int32_t tile_rows : range_row_tiles) {
        const Planned planned = make_planned(rows, group, 2, 0, tail, 132, {tile_rows, 0});
        if (planned.tiles.size() == 1) continue;
        std::int32_t before = 0;
        for (const RowTile& tile : planned.tiles) {
          if (5 * group <= tile_rows) {
            EXPECT_EQ(tile.rows.begin % (5 * group), 0);
            // With the next text it would be too large.
            EXPECT_TRUE(before == 0 || tile.rows.begin - before + 5 * group > tile_rows);
          }
          before = tile.rows.begin;
        }
      }
    }
  }
}

// Texts of few rows, 260 tokens behind each other; measured on an H200.
TEST(RowTiles, SuitTheRowsOfTexts) {
  const auto tiles = [](std::int32_t texts, std::int32_t rows, std::int32_t tokens,
                        std::int32_t group, std::int32_t kv_heads) {
    const std::vector<KvSlot> slots(static_cast<std::size_t>(tokens), 0);
    std::vector<KvSegment> tail;
    for (std::int32_t text = 0; text < texts; ++text) {
      const std::int32_t first = text * rows;
      tail.push_back({slots, first, first + rows, true, 0});
      for (std::int32_t row = 0; row < rows; ++row) {
        tail.push_back({{slots.data(), 1}, first + row, first + rows, false, 0});
      }
    }
    std::vector<RowTile> room = room_for_tiles(texts * rows, group);
    RangePlanner planner;
    const RangePlan plan =
        planner.plan({texts * rows, texts * rows, group, kv_heads, 0, tail}, 132, {}, room).plan;
    EXPECT_EQ(plan.gang, 1);
    return plan.tiles;
  };
  const RangeTiles narrow = {range_narrow_tile, range_tile_tokens};
  const RangeTiles half = {range_half_tile, range_tile_tokens};
  EXPECT_EQ(tiles(64, 4, 1024, 1, 32), narrow);
  EXPECT_EQ(tiles(16, 8, 1024, 1, 32), narrow);
  EXPECT_EQ(tiles(8, 3, 1024, 1, 32), narrow);
  EXPECT_EQ(tiles(32, 3, 256, 1, 32), narrow);
  EXPECT_EQ(tiles(32, 4, 1024, 4, 8), narrow);
  // A row tile with several short texts has fewer KV tiles that are not full.
  EXPECT_EQ(tiles(64, 4, 256, 4, 8), half);
  EXPECT_EQ(tiles(64, 8, 1024, 4, 8), half);
  EXPECT_EQ(tiles(64, 4, 1024, 8, 8), half);
  EXPECT_EQ(tiles(16, 30, 1024, 4, 8).rows, range_wide_tile);
}

}  // namespace
}  // namespace coppice
