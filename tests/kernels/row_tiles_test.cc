#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <tuple>
#include <vector>

#include "kernels/cuda/attention/box_order.h"
#include "kernels/cuda/attention/range_plan.h"
#include "kernels/range_rig.h"
#include "kernels/window.h"

namespace coppice {
namespace {

using testing::make_planned;
using testing::make_tail;
using testing::Planned;
using testing::room_for_tiles;
using testing::Tail;

// Every KV tile of a unit is read once, those of the prefix in order, and as many of them by any
// place as they have a share of. The others are in order, but for those that the upper half alone
// sees, which come in turn with the last of those before.
TEST(TileOrder, PrefixComesEvenlyAmongTheRest) {
  for (const std::int32_t tiles : {1, 2, 3, 7, 20, 33, 128, 1000}) {
    for (std::int32_t prefix = 0; prefix <= tiles; prefix += std::max(1, tiles / 16)) {
      for (std::int32_t lower = prefix; lower <= tiles; lower += std::max(1, tiles / 16)) {
        const TileOrder order(prefix, tiles, lower);
        std::int32_t of_prefix = 0;
        std::vector<std::int32_t> others, expected;
        for (std::int32_t place = 0; place < tiles; ++place) {
          const std::int32_t tile = order[place];
          if (tile < prefix) {
            ASSERT_EQ(tile, of_prefix++);
          } else {
            others.push_back(tile);
          }
          ASSERT_NEAR(of_prefix, (place + 1.0) * prefix / tiles, 1.1)
              << prefix << " of " << tiles << " tiles, place " << place;
        }
        ASSERT_EQ(of_prefix, prefix);
        if (prefix > 0) {
          ASSERT_EQ(order[0], 0);
        }
        const std::int32_t turns = std::min(lower - prefix, tiles - lower);
        for (std::int32_t tile = prefix; tile < lower - turns; ++tile) expected.push_back(tile);
        for (std::int32_t turn = 0; turn < turns; ++turn) {
          expected.push_back(lower - turns + turn);
          expected.push_back(lower + turn);
        }
        for (std::int32_t tile = lower + turns; tile < tiles; ++tile) expected.push_back(tile);
        ASSERT_EQ(others, expected) << prefix << " and " << lower << " of " << tiles << " tiles";
        // Nothing lies behind a unit's end, wherever a longer one of its gang ends.
        for (std::int32_t place = tiles; place < tiles + 5; ++place) ASSERT_EQ(order[place], place);
      }
    }
  }
}
// So long a prefix that its parts cannot be counted comes first.
TEST(TileOrder, VeryLongPrefixesComeFirst) {
  const TileOrder order(1 << 20, (1 << 20) + 7, (1 << 20) + 7);
  for (const std::int32_t place : {0, 5, (1 << 20) - 1, 1 << 20, (1 << 20) + 6}) {
    EXPECT_EQ(order[place], place);
  }
}

// Where the tokens begin that the upper half of a wide row tile alone sees.
TEST(RowTiles, UpperHalvesTokensAreFound) {
  std::mt19937 random(5);
  for (const std::int32_t rows : {1, 40, 300, 1000}) {
    for (const Tail kind : {Tail::tree, Tail::causal, Tail::branches, Tail::texts}) {
      const std::vector<VisibleKv> tail = make_tail(kind, rows, random);
      for (const std::int32_t group : {1, 3, 4, 16}) {
        const Planned planned = make_planned(rows, group, 1, 0, tail, 132);
        for (const RowTile& runs : planned.tiles) {
          const auto is_upper = [&](std::int32_t at) {
            return tail[static_cast<std::size_t>(at)].q_begin * group >= runs.rows.begin + 64;
          };
          for (std::int32_t i = 0; i < RowTile::most_runs; ++i) {
            for (std::int32_t rank = runs.first[i]; rank < runs.end[i]; ++rank) {
              const std::int32_t at = runs.begin[i] + rank - runs.first[i];
              if (rank < runs.lower_tokens) {
                ASSERT_FALSE(is_upper(at));
              } else if (rank == runs.lower_tokens) {
                ASSERT_TRUE(is_upper(at));
              }
            }
          }
          ASSERT_GE(runs.lower_tokens, 0);
          ASSERT_LE(runs.lower_tokens, runs.seen());
        }
      }
    }
  }
}

/// Neighbouring tokens, and the first query that sees them and the one past the last.
struct Stretch {
  std::int32_t tokens, begin, end;
};
// Whether halves of a pass's row tiles, which are of these sizes, leave KV tiles out.
bool leaves_out(const std::vector<Stretch>& stretches, std::int32_t group, std::int32_t prefix,
                RangeTiles tiles, bool window_or_cap = false) {
  const std::vector<KvSlot> slots(10000, 1);
  std::vector<KvSegment> tail;
  std::int32_t rows = 0;
  for (const Stretch& of : stretches) {
    tail.push_back({std::span<const KvSlot>(slots).first(static_cast<std::size_t>(of.tokens)),
                    of.begin, of.end, false, 0});
    rows = std::max(rows, of.end);
  }
  std::vector<KvSegment> by_row = tail;
  std::stable_sort(by_row.begin(), by_row.end(),
                   [](const auto& a, const auto& b) { return a.q_begin < b.q_begin; });
  RangeWork work{rows, rows, group, 132, prefix, tail, window_or_cap};
  work.by_row = by_row;
  std::vector<RowTile> room = room_for_tiles(rows, group);
  RangePlanner planner;
  const RangeShares& shares = planner.plan(work, 132, tiles, room);
  EXPECT_EQ(shares.plan.tiles, tiles);
  return shares.leaves_out;
}

// Halves of wide row tiles leave KV tiles out if that is a tenth of what they would read, in the
// mean of both: of neighbours that one half sees alone all but one KV tile.
TEST(RowTiles, HalvesLeaveOutWhatIsWorthIt) {
  const RangeTiles whole{range_wide_tile, range_tile_tokens};
  const RangeTiles half{range_wide_tile, range_half_tokens};
  const auto most_prefix = [](const std::vector<Stretch>& stretches, std::int32_t group,
                              std::int32_t prefix, RangeTiles tiles) {
    EXPECT_TRUE(leaves_out(stretches, group, prefix, tiles));
    EXPECT_FALSE(leaves_out(stretches, group, prefix + 1, tiles));
  };
  // Queries of 16 rows, so that either half has four.
  const auto texts = [](std::int32_t lower, std::int32_t upper) {
    std::vector<Stretch> of;
    for (std::int32_t q = 0; q < 8; ++q) of.push_back({q < 4 ? lower : upper, q, q + 1});
    return of;
  };
  most_prefix(texts(100, 100), 16, 10 * (272 + 272) / 2 - 800, whole);
  most_prefix(texts(100, 100), 16, 10 * (336 + 336) / 2 - 800, half);
  most_prefix(texts(100, 10), 16, 10 * 272 / 2 - 440, whole);
  most_prefix(texts(10, 100), 16, 10 * 272 / 2 - 440, whole);
  // As when boxes come first: the lower half's texts go on behind the upper one's.
  most_prefix({{200, 0, 4}, {200, 4, 8}, {200, 0, 4}, {200, 4, 8}}, 16, 10 * 4 * 72 / 2 - 800,
              whole);
  // What both see parts what one sees.
  most_prefix({{300, 0, 1}, {100, 0, 8}, {300, 1, 2}, {400, 8, 9}}, 12,
              10 * (172 + 172 + 272) / 2 - 1100, whole);
  // The second query has rows in both halves.
  most_prefix({{500, 0, 1}, {300, 1, 2}}, 48, 10 * 372 / 2 - 800, whole);
  // The first text's last four queries are the lower half of a second row tile.
  most_prefix({{600, 0, 12}, {600, 12, 16}}, 16, (10 * (472 + 472) / 2 - 1800) / 2, whole);
  // Nobody is in the upper half.
  EXPECT_TRUE(leaves_out({{100, 0, 1}, {100, 1, 2}, {100, 2, 3}}, 16, 100000, whole));

  EXPECT_FALSE(leaves_out(texts(100, 100), 16, 0, half, true)) << "has a rule";
  EXPECT_FALSE(leaves_out({{10, 0, 8}, {900, 0, 4}, {900, 4, 8}}, 16, 0, whole)) << "one text";
  const std::vector<Stretch> few = {{400, 0, 1}, {400, 1, 2}, {400, 2, 3}};
  EXPECT_FALSE(leaves_out(few, 16, 0, {range_half_tile, range_tile_tokens}));
  EXPECT_FALSE(
      leaves_out({{400, 0, 1}, {400, 1, 2}}, 8, 0, {range_narrow_tile, range_tile_tokens}));
}

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

/// Texts of `rows` rows each, chains behind tokens of their own; the first one's are the prefix if
/// it is alone.
struct WindowedTexts {
  static constexpr std::int32_t group = 4;
  std::vector<KvSlot> slots = std::vector<KvSlot>(700, 0);
  std::vector<KvSegment> tail, near;
  std::vector<std::int32_t> positions;
  RangeWork work;

  WindowedTexts(std::int32_t texts, std::int32_t rows, std::int32_t window) {
    std::mt19937 random(8);
    const std::span<const KvSlot> all = slots;
    std::int32_t prefix = 0;
    for (std::int32_t first = 0; first < texts * rows; first += rows) {
      const auto before = static_cast<std::int32_t>(70 + random() % 500);
      if (texts == 1) {
        prefix = before;
      } else {
        tail.push_back({all.first(static_cast<std::size_t>(before)), first, first + rows, true, 0});
      }
      for (std::int32_t row = 0; row < rows; ++row) {
        tail.push_back({all.last(1), first + row, first + rows, false, before + row});
        positions.push_back(before + row);
      }
    }
    trim_to_window(tail, positions, window, near);
    work = {texts * rows, texts * rows, group, 2, prefix, tail, true, window, 0, positions, near};
  }
  /// Whether a row of a row tile sees a token.
  bool sees(const RowTile& tile, IndexRange seen_by, std::int32_t position) const {
    const IndexRange queries{tile.rows.begin / group, (tile.rows.end - 1) / group + 1};
    const IndexRange among = intersection(seen_by, queries);
    for (std::int32_t row = among.begin; row < among.end; ++row) {
      if (positions[static_cast<std::size_t>(row)] < window_end(position, work.window)) return true;
    }
    return false;
  }
};

// By a window a row tile has what its rows see, and of what lies before that little else.
TEST(RowTiles, WindowsLeaveOutWhatIsNotSeen) {
  for (const std::int32_t texts : {1, 3, 6}) {
    for (const std::int32_t rows : {1, 7, 90}) {
      for (const std::int32_t window : {1, 20, 200, 5000}) {
        SCOPED_TRACE(::testing::Message()
                     << texts << " texts of " << rows << " rows, window " << window);
        const WindowedTexts all(texts, rows, window);
        std::vector<RowTile> tiles = room_for_tiles(texts * rows, WindowedTexts::group);
        RangePlanner planner;
        const RangeShares& shares = planner.plan(all.work, 132, {}, tiles);
        const RangePlan& plan = shares.plan;
        EXPECT_TRUE(range_tiles_exist(plan.tiles, true));
        for (std::int32_t t = 0; t < plan.row_tiles; ++t) {
          const RowTile& tile = tiles[static_cast<std::size_t>(t)];
          const auto group = static_cast<std::size_t>(t / plan.gang);
          EXPECT_GE(shares.unit_ends[group] - (group == 0 ? 0 : shares.unit_ends[group - 1]),
                    plan.tiles_of(tile));
          EXPECT_GE(plan.tiles_of(tile) * plan.tiles.tokens,
                    plan.prefix - tile.prefix_begin + tile.seen());
          const IndexRange all_rows{0, all.work.rows};
          std::int32_t first = 0;
          while (first < all.work.prefix && !all.sees(tile, all_rows, first)) ++first;
          EXPECT_EQ(tile.prefix_begin, first / range_box * range_box);
          const auto queries =
              std::span(all.positions)
                  .subspan(static_cast<std::size_t>(tile.rows.begin / 4),
                           static_cast<std::size_t>((tile.rows.end + 3) / 4 - tile.rows.begin / 4));
          EXPECT_EQ(tile.positions.begin, *std::min_element(queries.begin(), queries.end()));
          EXPECT_EQ(tile.positions.end, *std::max_element(queries.begin(), queries.end()) + 1);

          std::set<std::int32_t> listed;
          for (int run = 0; run < RowTile::most_runs; ++run) {
            for (std::int32_t i = 0; i < tile.end[run] - tile.first[run]; ++i) {
              listed.insert(tile.begin[run] + i);
            }
          }
          std::int32_t place = 0;
          for (const KvSegment& segment : all.tail) {
            const auto size = static_cast<std::int32_t>(segment.slots.size());
            const IndexRange seen_by{segment.q_begin, segment.q_end};
            for (std::int32_t i = 0; i < size; ++i, ++place) {
              const bool seen = all.sees(tile, seen_by, segment.first_position + i);
              ASSERT_TRUE(!seen || listed.contains(place)) << place;
              // All of a text's rows are in this tile, or this is no long segment.
              if (rows * 4 <= tile.rows.end - tile.rows.begin || size == 1) {
                ASSERT_TRUE(seen || !listed.contains(place)) << place;
              }
            }
          }
        }
      }
    }
  }
}

// Kernels with a window or a soft cap have fewer tiles.
TEST(RowTiles, RulesTakeTilesThatTheirKernelsHave) {
  for (const RangeTiles asked : {RangeTiles{},
                                 {range_narrow_tile, range_tile_tokens},
                                 {range_wide_tile, range_tile_tokens},
                                 {range_wide_tile, 0}}) {
    for (const std::int32_t texts : {1, 6}) {
      const WindowedTexts all(texts, 3, 0);
      std::vector<RowTile> tiles = room_for_tiles(texts * 3, WindowedTexts::group);
      RangePlanner planner;
      const RangePlan plan = planner.plan(all.work, 132, asked, tiles).plan;
      EXPECT_TRUE(range_tiles_exist(plan.tiles, true)) << asked.rows << " x " << asked.tokens;
      EXPECT_EQ(tiles[0].rows.begin, 0);
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
    const RangePlan plan = planner.plan({12, 12, 1, 4, prefix, tail}, 4, {}, tiles).plan;
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

/// Texts of a few rows that go through runs of a tree: each run at any place of the pool.
struct ForestOfTexts {
  std::vector<KvSlot> slots = std::vector<KvSlot>(1 << 16);
  std::vector<KvSegment> tail;
  std::int32_t rows = 0;

  explicit ForestOfTexts(std::mt19937& random) {
    std::iota(slots.begin(), slots.end(), 0);
    const auto below = [&](std::size_t end) { return random() % end; };
    const auto run = [&](std::size_t size) {
      return std::span<const KvSlot>(slots).subspan(below(slots.size() - size), size);
    };
    for (std::size_t group = 1 + below(3); group > 0; --group) {
      const auto texts = static_cast<std::int32_t>(1 + below(4)), each = 1 + texts % 3;
      const auto first = rows;
      rows += texts * each;
      tail.push_back({run(64 + below(300)), first, rows, true, 0});
      for (std::int32_t row = first; row < rows; row += each) {
        tail.push_back({run(1 + below(200)), row, row + each, true, 400});
        for (std::int32_t i = 0; i < each; ++i) {
          tail.push_back({run(1), row + i, row + each, false, 600 + i});
        }
      }
    }
  }
  // Counts, among 16 neighbouring slots of a long run, those that lie in a unit where no single
  // copy brings them; all of them in `all`.
  int misaligned(RangePlanner& planner, std::int32_t prefix, int& all) const {
    std::vector<RowTile> tiles = room_for_tiles(rows, 2);
    const RangePlan plan =
        planner
            .plan({rows, rows, 2, 4, prefix, tail}, 16, {range_half_tile, range_half_tokens}, tiles)
            .plan;
    int found = 0;
    for (std::int32_t t = 0; t < plan.row_tiles; ++t) {
      const RowTile& tile = tiles[static_cast<std::size_t>(t)];
      std::map<std::int32_t, std::int32_t> places;  // in the unit, of tokens of the tail
      for (std::int32_t run = 0; run < RowTile::most_runs; ++run) {
        for (std::int32_t i = tile.first[run]; i < tile.end[run]; ++i) {
          places[tile.begin[run] + i - tile.first[run]] = prefix + i;
        }
      }
      std::int32_t at = 0;
      for (const KvSegment& segment : tail) {
        const auto size = static_cast<std::int32_t>(segment.slots.size());
        const std::int32_t to_box = (range_box - segment.slots[0] % range_box) % range_box;
        for (std::int32_t i = to_box; size >= 64 && i + range_box <= size; i += range_box) {
          if (!places.contains(at + i)) continue;
          ++all;
          found += places[at + i] % range_box != 0 ? 1 : 0;
        }
        at += size;
      }
    }
    return found;
  }
};

// However texts share: and the check sees it if nothing is left out before runs.
TEST(RowTiles, AlignEveryLongRun) {
  std::mt19937 random(11);
  RangePlanner planner, faulty;
  faulty.aligns_nothing = true;
  int boxes = 0, faults = 0, others = 0;
  for (int round = 0; round < 300; ++round) {
    const ForestOfTexts forest(random);
    const auto prefix = static_cast<std::int32_t>(random() % 40);
    EXPECT_EQ(forest.misaligned(planner, prefix, boxes), 0) << "round " << round;
    faults += forest.misaligned(faulty, prefix, others);
  }
  EXPECT_EQ(boxes, others) << "the same tokens";
  EXPECT_GT(boxes, 10000);
  EXPECT_GT(faults, boxes / 2);
}

// What all texts see first does not keep row tiles from being of whole texts.
TEST(RowTiles, HaveWholeTextsBehindAPrefix) {
  std::vector<KvSlot> slots(2000);
  std::iota(slots.begin(), slots.end(), 0);
  std::vector<KvSegment> tail;
  for (std::int32_t text = 0; text < 30; ++text) {
    const auto at = static_cast<std::size_t>(60 * text);
    tail.push_back(
        {std::span<const KvSlot>(slots).subspan(at, 57), 3 * text, 3 * text + 3, true, 0});
    for (std::int32_t row = 0; row < 3; ++row) {
      tail.push_back(
          {std::span<const KvSlot>(slots).subspan(at + 57 + static_cast<std::size_t>(row), 1),
           3 * text + row, 3 * text + 3, false, 0});
    }
  }
  for (const std::int32_t tile_rows : range_row_tiles) {
    std::vector<RowTile> tiles = room_for_tiles(90, 4);
    RangePlanner planner;
    const RangePlan plan =
        planner.plan({90, 90, 4, 8, 1000, tail}, 132, {tile_rows, range_tile_tokens}, tiles).plan;
    EXPECT_EQ(plan.tiles.rows, tile_rows);
    for (std::int32_t t = 0; t < plan.row_tiles; ++t) {
      const IndexRange rows = tiles[static_cast<std::size_t>(t)].rows;
      EXPECT_EQ(rows.begin % 12, 0);
      EXPECT_EQ(tiles[static_cast<std::size_t>(t)].seen() % 60, 0);
    }
  }
  // Row tiles read a long prefix together, so that few are best; a short one they may all read.
  const auto chosen = [&](std::int32_t prefix) {
    std::vector<RowTile> tiles = room_for_tiles(90, 4);
    RangePlanner planner;
    return planner.plan({90, 90, 4, 8, prefix, tail}, 132, {}, tiles).plan.tiles.rows;
  };
  EXPECT_EQ(chosen(60000), range_wide_tile);
  EXPECT_LT(chosen(16), range_wide_tile);
}

// Behind a prefix, too, row tiles have about as many texts each: those that lie side by side are
// run by blocks that end together.
TEST(RowTiles, HaveAboutAsManyTextsBehindAPrefix) {
  std::vector<KvSlot> slots(50 * 80);
  std::iota(slots.begin(), slots.end(), 0);
  std::vector<KvSegment> tail;
  for (std::int32_t text = 0; text < 50; ++text) {
    const auto own = std::span<const KvSlot>(slots).subspan(static_cast<std::size_t>(80 * text));
    tail.push_back({own.first(79), text, text + 1, true, 0});
    tail.push_back({own.subspan(79, 1), text, text + 1, false, 79});
  }
  for (const auto& [tile_rows, row_tiles, most] :
       {std::tuple{16, 13, 4}, {64, 4, 13}, {128, 2, 25}}) {
    std::vector<RowTile> tiles = room_for_tiles(50, 4);
    RangePlanner planner;
    const RangePlan plan =
        planner.plan({50, 50, 4, 8, 1000, tail}, 132, {tile_rows, range_tile_tokens}, tiles).plan;
    ASSERT_EQ(plan.row_tiles, row_tiles);
    std::int32_t rows = 0;
    for (std::int32_t t = 0; t < plan.row_tiles; ++t) {
      const RowTile& tile = tiles[static_cast<std::size_t>(t)];
      EXPECT_EQ(tile.rows.begin, rows);
      EXPECT_LE(tile.rows.end - tile.rows.begin, 4 * most);
      rows = tile.rows.end;
    }
    EXPECT_EQ(rows, 200);
  }
}

// Few short texts: as many row tiles as give each block a whole unit, as nearly as whole texts do.
TEST(RowTiles, AreNoFewerThanBlocksWant) {
  std::vector<KvSlot> slots(8 * 208);
  std::iota(slots.begin(), slots.end(), 0);
  const std::span<const KvSlot> all = slots;
  for (const std::int32_t rows : {1, 4}) {
    std::vector<KvSegment> tail;
    for (std::int32_t text = 0; text < 8; ++text) {
      const auto at = static_cast<std::size_t>(208 * text);
      tail.push_back({all.subspan(at, 200), rows * text, rows * text + rows, true, 0});
      for (std::int32_t row = 0; row < rows; ++row) {
        tail.push_back({all.subspan(at + 200 + static_cast<std::size_t>(row), 1), rows * text + row,
                        rows * text + rows, false, 200 + row});
      }
    }
    for (const auto& [kv_heads, row_tiles] : {std::pair{32, 4}, {12, 8}, {8, 8}}) {
      std::vector<RowTile> tiles = room_for_tiles(8 * rows, 1);
      RangePlanner planner;
      const RangePlan plan =
          planner.plan({8 * rows, 8 * rows, 1, kv_heads, 0, tail}, 132, {}, tiles).plan;
      EXPECT_EQ(plan.row_tiles, row_tiles) << kv_heads << " KV heads";
      EXPECT_EQ(plan.gangs, kv_heads * row_tiles) << "whole units";
    }
  }
}

// Texts whose only tokens have no slot, or are nobody's, have nothing to read.
TEST(RowTiles, MayHaveNothingToRead) {
  const std::vector<KvSlot> none = {no_slot};
  const std::vector<KvSegment> tail = {
      {none, 0, 1, true, 0}, {none, 1, 2, true, 0}, {none, 2, 3, true, 0}};
  for (const std::int32_t prefix : {0, 40}) {
    std::vector<RowTile> tiles = room_for_tiles(3, 4);
    RangePlanner planner;
    const RangePlan plan = planner.plan({3, 3, 4, 2, prefix, tail}, 132, {}, tiles).plan;
    std::int32_t rows = 0;
    for (std::int32_t t = 0; t < plan.row_tiles; ++t) {
      const RowTile& tile = tiles[static_cast<std::size_t>(t)];
      EXPECT_EQ(tile.seen(), 0);
      EXPECT_EQ(tile.rows.begin, rows);
      rows = tile.rows.end;
    }
    EXPECT_EQ(rows, 12);
  }
}

// Where more texts share tokens than fit in a row tile, it ends where a text does.
TEST(RowTiles, HaveWholeTextsOfAGroup) {
  std::vector<KvSlot> slots(4000);
  std::iota(slots.begin(), slots.end(), 0);
  const std::span<const KvSlot> all = slots;
  std::vector<KvSegment> tail;
  std::size_t at = 0;
  for (std::int32_t first = 0; first < 120; first += 60) {
    tail.push_back({all.subspan(at, 200), first, first + 60, true, 0});
    at += 200;
    for (std::int32_t row = first; row < first + 60; row += 5) {
      tail.push_back({all.subspan(at, 66), row, row + 5, true, 200});
      tail.push_back({all.subspan(at + 66, 1), row, row + 5, false, 266});
      at += 67;
    }
  }
  for (const std::int32_t tile_rows : range_row_tiles) {
    std::vector<RowTile> tiles = room_for_tiles(120, 3);
    RangePlanner planner;
    const RangePlan plan =
        planner.plan({120, 120, 3, 8, 0, tail}, 132, {tile_rows, range_tile_tokens}, tiles).plan;
    std::int32_t next = 0;
    for (std::int32_t t = 0; t < plan.row_tiles; ++t) {
      const IndexRange rows = tiles[static_cast<std::size_t>(t)].rows;
      EXPECT_EQ(rows.begin, next);
      EXPECT_EQ(rows.begin % 15, 0) << "row tiles of " << tile_rows;
      next = rows.end;
    }
    EXPECT_EQ(next, 360);
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
        const Planned planned = make_planned(rows, group, 2, 0, tail, 1, {tile_rows, 0});
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

/// The plan of texts of as many rows, each behind tokens of its own, and all behind a prefix.
RangePlan plan_of_texts(std::int32_t texts, std::int32_t rows, std::int32_t tokens,
                        std::int32_t group, std::int32_t kv_heads, std::int32_t prefix = 0) {
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
  return planner.plan({texts * rows, texts * rows, group, kv_heads, prefix, tail}, 132, {}, room)
      .plan;
}

// Measured on an H200.
TEST(RowTiles, SuitTheRowsOfTexts) {
  const auto tiles = [](auto... of) {
    const RangePlan plan = plan_of_texts(of...);
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

// Halves that leave much out make wide row tiles faster; measured on an H200.
TEST(RowTiles, SuitManyTextsBehindAPrefix) {
  // Texts of a query each behind two boxes of their own, by boxes.
  const auto tiles = [](std::int32_t texts, std::int32_t group, std::int32_t kv_heads,
                        std::int32_t prefix) {
    std::vector<KvSlot> slots(static_cast<std::size_t>(33 * texts));
    std::iota(slots.begin(), slots.end(), 0);
    const std::span<const KvSlot> all = slots;
    std::vector<KvSegment> by_row, tail;
    for (std::int32_t text = 0; text < texts; ++text) {
      const auto at = static_cast<std::size_t>(text);
      by_row.push_back({all.subspan(32 * at, 32), text, text + 1, true, 0});
      by_row.push_back({all.last(at + 1).first(1), text, text + 1, false, 0});
    }
    EXPECT_TRUE(order_by_boxes(by_row, tail));
    RangeWork work{texts, texts, group, kv_heads, prefix, tail};
    work.by_row = by_row;
    std::vector<RowTile> room = room_for_tiles(texts, group);
    RangePlanner planner;
    const RangeShares& shares = planner.plan(work, 132, {}, room);
    EXPECT_EQ(shares.leaves_out, shares.plan.tiles.rows == range_wide_tile && group < 16);
    return shares.plan.tiles;
  };
  const RangeTiles wide = {range_wide_tile, range_tile_tokens};
  EXPECT_EQ(tiles(1024, 1, 32, 2048), wide);
  EXPECT_EQ(tiles(1024, 4, 8, 2048), wide);
  EXPECT_EQ(tiles(1024, 16, 1, 2048), wide);
  EXPECT_EQ(tiles(256, 1, 32, 256), (RangeTiles{range_half_tile, range_tile_tokens}));
}

// Few texts behind a prefix, so that a block has few KV tiles; measured on an H200.
TEST(RowTiles, SuitFewTextsBehindAPrefix) {
  const RangeTiles half = {range_half_tile, range_tile_tokens};
  const RangeTiles halves = {range_half_tile, range_half_tokens};
  // Wide row tiles take 14 and 6% longer.
  EXPECT_EQ(plan_of_texts(20, 1, 199, 4, 8, 4000).tiles, half);
  EXPECT_EQ(plan_of_texts(50, 1, 119, 4, 8, 4000).tiles, half);
  EXPECT_EQ(plan_of_texts(20, 1, 399, 1, 32, 4000).tiles, half);
  // DeFT's set, in its 36th and 217th iteration.
  EXPECT_EQ(plan_of_texts(9, 1, 35, 1, 32, 1611).tiles, halves);
  EXPECT_EQ(plan_of_texts(3, 1, 33, 1, 32, 1794).tiles, halves);
  EXPECT_EQ(plan_of_texts(9, 1, 35, 4, 8, 1611).tiles, halves);
}

}  // namespace
}  // namespace coppice
