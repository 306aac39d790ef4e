#include "kernels/cuda/attention/range_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <map>
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
  std::vector<TailRuns> runs;
  std::vector<BlockRange> ranges;
  const std::vector<VisibleKv>& tail;
  const RangePlan& plan() const { return shares.plan; }
};

Planned make_planned(std::int32_t rows, std::int32_t group, std::int32_t kv_heads,
                     std::int32_t prefix, const std::vector<VisibleKv>& tail, std::int32_t blocks,
                     std::int32_t tile_tokens = range_tile_tokens) {
  Planned planned{{}, {}, {}, tail};
  const std::int32_t tile_rows = range_row_tile_for(rows, group);
  planned.runs.resize(static_cast<std::size_t>(most_range_row_tiles(rows, group)));
  planned.ranges.resize(static_cast<std::size_t>(blocks));
  RangePlanner planner;
  planner.find_tail_runs(testing::segments_of(tail), rows, group, tile_rows, planned.runs);
  planned.shares =
      planner.plan(rows, group, kv_heads, tile_rows, prefix, planned.runs, blocks, tile_tokens);
  planned.shares.write_ranges(planned.ranges);
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
                visit(make_planned(rows, group, kv_heads, prefix, tail, blocks, tile_tokens));
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
        const std::int32_t tile_rows = range_row_tile_for(rows, group);
        std::vector<TailRuns> all(static_cast<std::size_t>(most_range_row_tiles(rows, group)));
        RangePlanner().find_tail_runs(testing::segments_of(tail), rows, group, tile_rows, all);
        RangePlan plan;
        plan.rows = rows;
        plan.group = group;
        plan.tile_rows = tile_rows;
        for (std::int32_t tile = 0; tile < plan.row_tiles(); ++tile) {
          const TailRuns& runs = all[static_cast<std::size_t>(tile)];
          std::vector<std::int32_t> listed;
          for (std::int32_t i = 0, before = 0; i < TailRuns::most; ++i) {
            for (std::int32_t at = runs.begin[i]; before < runs.seen_up_to[i]; ++at, ++before) {
              ASSERT_TRUE(listed.empty() || at > listed.back());
              listed.push_back(at);
            }
          }
          ASSERT_EQ(std::ssize(listed), runs.seen());
          std::vector<std::int32_t> seen;
          for (std::int32_t at = 0; at < std::ssize(tail); ++at) {
            const VisibleKv& token = tail[static_cast<std::size_t>(at)];
            if (!queries_that_see(token, plan.queries_of(tile)).empty()) seen.push_back(at);
          }
          ASSERT_TRUE(std::includes(listed.begin(), listed.end(), seen.begin(), seen.end()))
              << rows << " rows, group " << group << ", row tile " << tile;
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
      const std::int32_t tile_rows = range_row_tile_for(200, group);
      std::vector<TailRuns> one_by_one(static_cast<std::size_t>(most_range_row_tiles(200, group))),
          by_segments = one_by_one;
      RangePlanner().find_tail_runs(testing::segments_of(tail), 200, group, tile_rows, one_by_one);
      RangePlanner().find_tail_runs(segments, 200, group, tile_rows, by_segments);
      for (std::size_t tile = 0; tile < one_by_one.size(); ++tile) {
        const TailRuns &a = one_by_one[tile], &b = by_segments[tile];
        EXPECT_TRUE(std::equal(a.begin, std::end(a.begin), b.begin));
        EXPECT_TRUE(std::equal(a.seen_up_to, std::end(a.seen_up_to), b.seen_up_to));
      }
    }
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
  std::vector<TailRuns> runs(2);
  RangePlanner().find_tail_runs(testing::segments_of(tail), 64, 4, range_wide_tile, runs);
  EXPECT_GE(runs[0].seen(), seen);
  EXPECT_LE(runs[0].seen(), seen + 25);
}

TEST(RangePlan, PiecesCoverEveryTileOnce) {
  for_each_plan([](const Planned& planned) {
    const RangePlan& plan = planned.plan();
    ASSERT_LE(plan.gang * plan.gangs, std::ssize(planned.ranges));
    ASSERT_GE(plan.gang * plan.row_groups, plan.row_tiles());
    // Pieces of a unit follow one another, gang by gang.
    std::map<std::pair<std::int32_t, std::int32_t>, std::int32_t> covered;
    for (const BlockRange& range : planned.ranges) {
      for (const RangePiece& piece : pieces_of(plan, range)) {
        ASSERT_LT(piece.kv_head, plan.kv_heads);
        ASSERT_LT(piece.tile_begin, piece.tile_end);
        if (piece.row_tile >= plan.row_tiles()) continue;
        auto& next = covered[{piece.kv_head, piece.row_tile}];
        ASSERT_EQ(piece.tile_begin, next);
        next = piece.tile_end;
      }
    }
    ASSERT_EQ(std::ssize(covered), plan.kv_heads * plan.row_tiles());
    for (const auto& [unit, end] : covered) {
      const TailRuns& runs = planned.runs[static_cast<std::size_t>(unit.second)];
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
        static_cast<std::size_t>(plan.kv_heads * plan.row_tiles()),
        std::vector<int>(static_cast<std::size_t>(plan.prefix) + planned.tail.size(), 0));
    for (const BlockRange& range : planned.ranges) {
      for (const RangePiece& piece : pieces_of(plan, range)) {
        if (piece.row_tile >= plan.row_tiles()) continue;
        const TailRuns& runs = planned.runs[static_cast<std::size_t>(piece.row_tile)];
        auto& of_unit =
            met[static_cast<std::size_t>(piece.kv_head * plan.row_tiles() + piece.row_tile)];
        const std::int32_t tokens = plan.prefix + runs.seen();
        const std::int32_t end = std::min(piece.tile_end, plan.tiles_of(runs.seen()));
        for (std::int32_t place = piece.tile_begin * plan.tile_tokens;
             place < std::min(end * plan.tile_tokens, tokens); ++place) {
          std::int32_t at = place;
          if (place >= plan.prefix) {
            const std::int32_t rank = place - plan.prefix;
            const auto run = std::upper_bound(runs.seen_up_to, std::end(runs.seen_up_to), rank) -
                             runs.seen_up_to;
            at = plan.prefix + runs.begin[run] + rank - (run > 0 ? runs.seen_up_to[run - 1] : 0);
          }
          ++of_unit[static_cast<std::size_t>(at)];
        }
      }
    }
    for (std::size_t unit = 0; unit < met.size(); ++unit) {
      const auto row_tile = static_cast<std::int32_t>(unit) % plan.row_tiles();
      for (std::int32_t at = 0; at < std::ssize(met[unit]); ++at) {
        const int times = met[unit][static_cast<std::size_t>(at)];
        ASSERT_LE(times, 1);
        const bool seen =
            at < plan.prefix ||
            !queries_that_see(planned.tail[static_cast<std::size_t>(at - plan.prefix)],
                              plan.queries_of(row_tile))
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
  for (std::int32_t t = 0; t < plan.row_tiles(); ++t) {
    work += plan.kv_heads * plan.tiles_of(planned.runs[static_cast<std::size_t>(t)].seen());
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
  return make_planned(rows, group, kv_heads, prefix, make_tail(Tail::tree, rows, random), 132, 0)
      .plan();
}

// Half tiles where ranges are short, or bound by reading; measured on an H200.
TEST(RangePlan, HalfTilesWherePassesAreShort) {
  EXPECT_EQ(chosen(64, 4, 8, 1024).tile_tokens, range_half_tokens);
  EXPECT_EQ(chosen(64, 1, 32, 4096).tile_tokens, range_half_tokens);
  EXPECT_EQ(chosen(1, 4, 8, 16384).tile_tokens, range_half_tokens);
  EXPECT_EQ(chosen(64, 4, 8, 65536).tile_tokens, range_tile_tokens);
  EXPECT_EQ(chosen(256, 4, 8, 4096).tile_tokens, range_tile_tokens);
  EXPECT_EQ(chosen(64, 1, 32, 65536).tile_tokens, range_tile_tokens);
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
