#include "range_costs.h"

#include <gtest/gtest.h>

namespace coppice::bench {
namespace {

constexpr RangeTiles some_tiles{64, 128};

/// 4 us and one for every 128 tokens, but from 1024 tokens on half as much for each.
PieceCosts rising_costs() {
  PieceCosts result;
  result.set(some_tiles, {5, 6, 8, 12, 16, 24, 40, 72});
  return result;
}

TEST(RangeCosts, AreLinearBetweenMeasuredLengths) {
  EXPECT_DOUBLE_EQ(rising_costs().us(some_tiles, 128), 5.0);
  EXPECT_DOUBLE_EQ(rising_costs().us(some_tiles, 64), 4.5);
  EXPECT_DOUBLE_EQ(rising_costs().us(some_tiles, 768), 10.0);
  EXPECT_DOUBLE_EQ(rising_costs().us(some_tiles, 1536), 14.0);
  EXPECT_DOUBLE_EQ(rising_costs().us(some_tiles, 32768), 136.0);
  EXPECT_ANY_THROW(rising_costs().us({16, 128}, 128));
}

TEST(RangeCosts, TheLeastDividesWhatIsTooLong) {
  // As many equal units as blocks: each a piece.
  EXPECT_NEAR(least_us(rising_costs(), some_tiles, std::vector<std::int32_t>(4, 1024), 4), 12.0,
              1e-6);
  // Two for each block.
  EXPECT_NEAR(least_us(rising_costs(), some_tiles, std::vector<std::int32_t>(8, 1024), 4), 24.0,
              1e-6);
  // One alone is cut in four, of 256 tokens each.
  EXPECT_NEAR(least_us(rising_costs(), some_tiles, std::vector<std::int32_t>{1024}, 4), 6.0, 1e-6);
  // No further than into KV tiles.
  EXPECT_NEAR(least_us(rising_costs(), some_tiles, std::vector<std::int32_t>{256}, 64), 5.0, 1e-6);
  // A long one is cut in four of 14 us each, to which the short one adds its 5.
  EXPECT_NEAR(least_us(rising_costs(), some_tiles, std::vector<std::int32_t>{6144, 128}, 4), 15.25,
              1e-6);
}

TEST(RangeCosts, PiecesOfAPlanAreItsUnits) {
  std::vector<KvSlot> slots(10000);
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = static_cast<KvSlot>(i);
  const std::span<const KvSlot> all = slots;
  std::vector<KvSegment> tail;
  std::int32_t at = 0;
  for (std::int32_t text = 0; text < 20; ++text) {
    const std::int32_t tokens = 64 * (1 + text % 5);
    tail.push_back({all.subspan(static_cast<std::size_t>(at), static_cast<std::size_t>(tokens)),
                    text, text + 1, true, 0});
    at += tokens;
  }
  for (const std::int32_t prefix : {0, 3000}) {
    for (const std::int32_t blocks : {7, 132}) {
      RangeDivision division;
      division.tiles.resize(static_cast<std::size_t>(most_range_row_tiles(20, 4)));
      division.ranges.resize(static_cast<std::size_t>(blocks));
      RangePlanner planner;
      const RangeShares& shares =
          planner.plan({20, 20, 4, 8, prefix, tail}, blocks, {}, division.tiles);
      division.plan = shares.plan;
      shares.write_ranges(division.tiles, division.ranges);
      std::int64_t of_units = 0, of_pieces = 0;
      for (const std::int32_t unit : division.units()) of_units += unit;
      for (const auto& pieces : division.pieces()) {
        for (const std::int32_t tokens : pieces) of_pieces += tokens;
      }
      EXPECT_EQ(of_pieces, of_units);
      PieceCosts by_tokens;  // a microsecond for each
      std::array<double, PieceCosts::lengths.size()> us{};
      std::copy(PieceCosts::lengths.begin(), PieceCosts::lengths.end(), us.begin());
      by_tokens.set(division.plan.tiles, us);
      EXPECT_GE(makespan_us(by_tokens, division) * blocks, static_cast<double>(of_units));
    }
  }
}

}  // namespace
}  // namespace coppice::bench
