// The order of a tail that ranges read.
#include "kernels/cuda/attention/box_order.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/range_rig.h"
#include "kernels/window.h"

namespace coppice {
namespace {

using Token = std::tuple<KvSlot, std::int32_t, std::int32_t, std::int32_t, bool>;

std::vector<Token> tokens_of(std::span<const KvSegment> segments) {
  std::vector<Token> tokens;
  for (const KvSegment& segment : segments) {
    std::int32_t position = segment.first_position;
    for (const KvSlot slot : segment.slots) {
      tokens.push_back({slot, segment.q_begin, segment.q_end, position++, segment.former});
    }
  }
  return tokens;
}

/// Texts of up to `longest` tokens behind one another, each in pages of 16 of its own and with
/// `fresh` tokens of this pass; some begin anywhere in a page.
struct Texts {
  std::vector<KvSlot> slots;
  std::vector<KvSegment> segments;

  Texts(std::int32_t texts, std::int32_t longest, std::int32_t fresh, std::mt19937& random) {
    slots.resize(static_cast<std::size_t>(texts * (longest + fresh + 48)));
    std::iota(slots.begin(), slots.end(), 0);
    std::size_t at = 0;
    for (std::int32_t text = 0; text < texts; ++text) {
      if (random() % 4 == 0) at += random() % 16;
      const auto former =
          static_cast<std::size_t>(random()) % static_cast<std::size_t>(longest + 1);
      const std::span<const KvSlot> all = slots;
      const std::int32_t row = text * fresh;
      segments.push_back({all.subspan(at, former), row, row + fresh, true, 7});
      at += former;
      for (std::int32_t i = 0; i < fresh; ++i) {
        segments.push_back({all.subspan(at++, 1), row + i, row + fresh, false,
                            7 + static_cast<std::int32_t>(former) + i});
      }
      at = (at + 15) / 16 * 16;
    }
  }
};

TEST(BoxOrder, HasEveryTokenOnceAndWholeBoxesFirst) {
  std::mt19937 random(3);
  for (int i = 0; i < 200; ++i) {
    const Texts texts(2 + static_cast<std::int32_t>(random() % 9), i, 1 + i % 3, random);
    std::vector<KvSegment> ordered;
    ASSERT_TRUE(order_by_boxes(texts.segments, ordered));
    std::vector<Token> expected = tokens_of(texts.segments), got = tokens_of(ordered);
    std::sort(expected.begin(), expected.end());
    std::sort(got.begin(), got.end());
    ASSERT_EQ(got, expected);
    bool boxes = true;
    std::int32_t last_row = 0;
    for (const KvSegment& segment : ordered) {
      ASSERT_FALSE(segment.slots.empty());
      if (boxes && !is_boxed(segment)) {
        boxes = false;
        last_row = 0;
      }
      // Behind them nothing has a whole box, or is boxed by itself.
      if (!boxes) {
        ASSERT_FALSE(is_boxed(segment));
        ASSERT_LT(segment.slots.size(), 32u);
      }
      ASSERT_GE(segment.q_begin, last_row);
      last_row = segment.q_begin;
    }
  }
}

TEST(BoxOrder, LeavesATextAlone) {
  std::mt19937 random(4);
  const Texts one(1, 100, 3, random);
  std::vector<KvSegment> ordered(2);
  EXPECT_FALSE(order_by_boxes(one.segments, ordered));
  EXPECT_EQ(ordered.size(), 2u);
}

// However long texts are, in that order a row tile's tokens have less than a box left out before
// them, and lie in few runs. Nothing else changes: it has the same rows and tokens.
TEST(BoxOrder, NeedsNoRunsOfTexts) {
  std::mt19937 random(6);
  for (const std::int32_t longest : {15, 40, 200, 1000}) {
    const Texts texts(64, longest, 2, random);
    std::vector<KvSegment> ordered;
    ASSERT_TRUE(order_by_boxes(texts.segments, ordered));
    for (const std::int32_t tile_rows : range_row_tiles) {
      RangePlanner planner;
      std::vector<RowTile> room(256);
      const RangeShares& shares = planner.plan({.rows = 128,
                                                .padded_rows = 128,
                                                .group = 4,
                                                .kv_heads = 2,
                                                .tail = ordered,
                                                .by_row = texts.segments},
                                               132, {tile_rows, range_tile_tokens}, room);
      std::int64_t seen = 0, rows = 0;
      for (std::int32_t t = 0; t < shares.plan.row_tiles; ++t) {
        const RowTile& tile = room[static_cast<std::size_t>(t)];
        rows += tile.rows.end - tile.rows.begin;
        std::int32_t runs = 0, listed = 0;
        for (std::int32_t i = 0; i < RowTile::most_runs; ++i) {
          const std::int32_t count = tile.end[i] - tile.first[i];
          runs += count > 0 ? 1 : 0;
          listed += count;
        }
        ASSERT_LE(runs, 2);
        ASSERT_LT(tile.seen() - listed, range_box);
        seen += listed;
      }
      ASSERT_EQ(rows, 128 * 4);
      ASSERT_EQ(seen, std::ssize(tokens_of(ordered)));
    }
  }
}

// What a window leaves out of a text before its last tokens ends a run. Row tiles have no more
// texts than they have runs for, and so list next to nothing that no row sees.
TEST(BoxOrder, WindowsLeaveOutWhatNoRowSees) {
  for (const std::int32_t group : {1, 2}) {
    constexpr std::int32_t texts = 64, window = 128;
    std::vector<KvSlot> slots(texts * 8192);
    std::iota(slots.begin(), slots.end(), 0);
    std::vector<KvSegment> segments;
    std::vector<std::int32_t> positions;
    for (std::int32_t text = 0; text < texts; ++text) {
      const std::int32_t former = 3000 + 37 * text;
      const auto own =
          std::span<const KvSlot>(slots).subspan(static_cast<std::size_t>(text) * 8192);
      segments.push_back({own.first(static_cast<std::size_t>(former)), text, text + 1, true, 512});
      segments.push_back(
          {own.subspan(static_cast<std::size_t>(former), 1), text, text + 1, false, 512 + former});
      positions.push_back(512 + former);
    }
    std::vector<KvSegment> ordered, near;
    ASSERT_TRUE(order_by_boxes(segments, ordered));
    trim_to_window(ordered, positions, window, near);
    RangePlanner planner;
    std::vector<RowTile> room(256);
    const RangeShares& shares = planner.plan({.rows = texts,
                                              .padded_rows = texts,
                                              .group = group,
                                              .kv_heads = 8,
                                              .prefix = 512,
                                              .tail = ordered,
                                              .window_or_cap = true,
                                              .window = window,
                                              .positions = positions,
                                              .near_tail = near,
                                              .by_row = segments},
                                             132, {}, room);
    std::int64_t seen = 0;
    for (std::int32_t t = 0; t < shares.plan.row_tiles; ++t) {
      seen += room[static_cast<std::size_t>(t)].seen();
    }
    EXPECT_LE(seen, texts * (window + 2 * range_box)) << group;
  }
}

}  // namespace
}  // namespace coppice
