#include "kernels/cuda/attention/range_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <span>
#include <utility>
#include <vector>

#include "base/tree_order.h"
#include "reference/segments.h"

namespace coppice {
namespace {

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

enum class Tail { tree, causal, branches, texts };

/// One token per row, or 100 in branches; some are holes. Texts are of up to 5 rows, each behind 70
/// tokens of its own.
std::vector<VisibleKv> make_tail(Tail kind, std::int32_t rows, std::mt19937& random) {
  std::vector<VisibleKv> tail;
  if (kind == Tail::branches) {
    for (std::int32_t at = 0; at < 100 * rows; ++at) tail.push_back({at, at / 100, at / 100 + 1});
    return tail;
  }
  if (kind == Tail::texts) {
    for (std::int32_t first = 0; first < rows; first += 5) {
      const std::int32_t end = std::min(first + 5, rows);
      for (int i = 0; i < 70; ++i) tail.push_back({i, first, end});
      for (std::int32_t row = first; row < end; ++row) tail.push_back({row, row, end});
    }
    return tail;
  }
  TokenTree tree;
  tree.reset(0);
  while (kind == Tail::tree && tree.nodes() < rows) {
    const auto parent = static_cast<std::int32_t>(random() % static_cast<unsigned>(tree.nodes()));
    tree.add(std::max(parent, tree.nodes() - 40), tree.nodes(), 0, 0.5f, 0.5);
  }
  TreeOrder order;
  order.assign(tree);
  for (std::int32_t row = 0; row < rows; ++row) {
    const std::int32_t end =
        kind == Tail::causal ? rows : row + order.subtree_rows[static_cast<std::size_t>(row)];
    tail.push_back({random() % 20 == 0 ? no_slot : row, row, end});
  }
  return tail;
}

struct Planned {
  RangeShares shares;
  std::vector<RowTile> tiles;
  std::vector<BlockRange> ranges;
  const std::vector<VisibleKv>& tail;
  const RangePlan& plan() const { return shares.plan; }
};

std::vector<RowTile> room_for_tiles(std::int32_t rows, std::int32_t group) {
  return std::vector<RowTile>(static_cast<std::size_t>(most_range_row_tiles(rows, group)));
}

Planned make_planned(std::int32_t rows, std::int32_t group, std::int32_t kv_heads,
                     std::int32_t prefix, const std::vector<VisibleKv>& tail, std::int32_t blocks,
                     RangeTiles tiles = {0, range_tile_tokens}) {
  // Kept, as a pass keeps them: there may be room for thousands of row tiles.
  static RangePlanner planner;
  static std::vector<RowTile> kept;
  const auto most = static_cast<std::size_t>(most_range_row_tiles(rows, group));
  kept.resize(std::max(kept.size(), most));
  const std::span<RowTile> room = std::span(kept).first(most);
  Planned planned{{}, {}, {}, tail};
  planned.ranges.resize(static_cast<std::size_t>(blocks));
  const auto segments = testing::segments_of(tail);
  planned.shares =
      planner.plan({rows, rows, group, kv_heads, prefix, segments}, blocks, tiles, room);
  planned.tiles.assign(room.begin(), room.begin() + planned.plan().row_tiles);
  planned.shares.write_ranges(planned.tiles, planned.ranges);
  return planned;
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

// Every row tile's runs have each token once that it sees, in order.
TEST(RangePlan, RunsHaveWhatRowTilesSee) {
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
TEST(RangePlan, SegmentsAreTheirTokens) {
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
TEST(RangePlan, FormerTokensAreAligned) {
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
TEST(RangePlan, CloseRunsAreJoined) {
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
TEST(RangePlan, RowTilesHaveWholeTexts) {
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

// Texts of few rows, 260 tokens behind each other; measured on an H200.
TEST(RangePlan, RowTilesOfTextsSuitTheirRows) {
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
