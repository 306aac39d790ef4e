#include "cells.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"

namespace coppice::bench {
namespace {

TEST(TreeAttentionCells, EveryCellHasAnAnchor) {
  const std::vector<Anchor> anchors = committed_anchors();
  const std::vector<Cell> cells = verify_cells();
  ASSERT_EQ(cells.size(), 63u);
  ASSERT_EQ(anchors.size(), cells.size());
  std::set<std::string> names;
  for (const Cell& cell : cells) {
    const auto anchor = anchor_of(anchors, cell);
    ASSERT_TRUE(anchor) << cell.name();
    EXPECT_GT(anchor->best_us, anchor->bound_us) << cell.name();
    EXPECT_FALSE(anchor->by.empty());
    names.insert(cell.name());
  }
  EXPECT_EQ(names.size(), cells.size());
}

// The file's bounds come from another program. They are printed to 0.01 us.
TEST(TreeAttentionCells, BoundsAreThoseOfTheAnchors) {
  for (const Anchor& anchor : committed_anchors()) {
    EXPECT_NEAR(bound_us(cost_of(anchor.cell), anchor_ceilings), anchor.bound_us, 0.0051)
        << anchor.cell.name();
  }
}

TEST(TreeAttentionCells, CostByHand) {
  // 3 tokens of K and V for 2 KV heads, 1 query and output of 4 heads; 3 visible pairs.
  const Cost decode = cost_of({Kind::decode, 4, 2, 2, 1});
  EXPECT_EQ(decode.bytes, 2.0 * 128 * (2 * 3 * 2 + 2 * 1 * 4));
  EXPECT_EQ(decode.flops, 2.0 * 2 * 128 * 4 * 3);
  // 2 queries see 10 tokens, then themselves and the ones before: 10 + 1 + 10 + 2 pairs.
  EXPECT_EQ(cost_of({Kind::prefill, 4, 2, 10, 2}).flops, 2.0 * 2 * 128 * 4 * 23);
  // 3 texts of 2 queries, each of which sees its own text's 10 tokens.
  const Cost forest = cost_of({Kind::forest, 4, 2, 30, 6, 3});
  EXPECT_EQ(forest.bytes, 2.0 * 128 * (2 * 36 * 2 + 2 * 6 * 4));
  EXPECT_EQ(forest.flops, 2.0 * 2 * 128 * 4 * 60);
}

// Two shared levels of 1 and 3 nodes of 50 tokens, 9 texts of 10 tokens and 2 queries.
TEST(TreeAttentionCells, CostOfSharedLevelsByHand) {
  Cell cell{Kind::forest, 4, 2, 9 * 10, 9 * 2, 9};
  cell.levels = {{1, 50}, {3, 50}};
  EXPECT_EQ(cell.name(), "forest/4/2/s1x50-3x50/p9x10/t9x2");
  EXPECT_EQ(cell.shared(), 50);
  EXPECT_EQ(cell.above(), 100);
  EXPECT_EQ(cell.former(), 50 + 3 * 50 + 90);
  EXPECT_EQ(cell.tail(), 3 * 50 + 90 + 18);
  EXPECT_EQ(cost_of(cell).bytes, 2.0 * 128 * (2 * (290 + 18) * 2 + 2 * 18 * 4));
  EXPECT_EQ(cost_of(cell).flops, 2.0 * 2 * 128 * 4 * 18 * 110);
}

TEST(TreeAttentionCells, NodesOfALevelHaveEquallyManyChildren) {
  std::vector<Cell> cells = shared_cells();
  for (const Cell& cell : fasttree_cells()) cells.push_back(cell);
  std::set<std::string> names;
  for (const Cell& cell : cells) {
    EXPECT_TRUE(names.insert(cell.name()).second) << cell.name();
    ASSERT_FALSE(cell.levels.empty()) << cell.name();
    EXPECT_EQ(cell.levels.front().nodes, 1) << cell.name();
    for (std::size_t level = 0; level < cell.levels.size(); ++level) {
      const bool last = level + 1 == cell.levels.size();
      EXPECT_EQ((last ? cell.texts : cell.levels[level + 1].nodes) % cell.levels[level].nodes, 0)
          << cell.name();
    }
  }
}

// A window of 100 and 8 rows: 99 tokens of the prefix, and of the rows' own all.
TEST(TreeAttentionCells, CostOfWindowsByHand) {
  Cell cell{Kind::verify, 4, 2, 1000, 8};
  cell.head_dim = 256;
  cell.window = 100;
  cell.soft_cap = 50.0f;
  EXPECT_EQ(cell.name(), "verify/4/2/p1000/t8/d256/w100/c50");
  EXPECT_EQ(cost_of(cell).bytes, 2.0 * 256 * (2 * (99 + 8) * 2 + 2 * 8 * 4));
  EXPECT_EQ(cost_of(cell).flops, 2.0 * 2 * 256 * 4 * 8 * 100);
  cell.prefix = 50;
  EXPECT_EQ(cost_of(cell).flops, 2.0 * 2 * 256 * 4 * 8 * 50);
}

TEST(TreeAttentionCells, TargetByHand) {
  const Ceilings ceilings{1e12, 100e12};
  EXPECT_DOUBLE_EQ(target_us({92e6, 70e6}, ceilings), 4.0 + 100.0);
  EXPECT_DOUBLE_EQ(target_us({92e6, 14e9}, ceilings), 4.0 + 200.0);
  EXPECT_DOUBLE_EQ(bound_us({92e6, 14e9}, ceilings), 140.0);
  EXPECT_DOUBLE_EQ(forest_target_us({85e6, 6.5e9}, ceilings), 9.0 + 100.0);
  EXPECT_DOUBLE_EQ(forest_target_us({85e6, 13e9}, ceilings), 9.0 + 200.0);
}

TEST(TreeAttentionCells, FilterTakesPartsOfNames) {
  const std::vector<Cell> cells = verify_cells();
  EXPECT_EQ(filtered(cells, "").size(), 63u);
  EXPECT_EQ(filtered(cells, "fewshot").size(), 3u);
  EXPECT_EQ(filtered(cells, "verify/32/8/").size(), 20u);
  EXPECT_EQ(filtered(cells, "/32/8/p4096/t64/").size(), 1u);
  EXPECT_EQ(filtered(cells, "/32/8/p4096/t64/,fewshot").size(), 4u);
  EXPECT_EQ(filtered(cells, "decode").size(), 0u);
  EXPECT_EQ(filtered(forest_cells(), "forest/32/8/p64x1024/t64x4/").size(), 1u);
}

TEST(TreeAttentionCells, BrokenAnchorsAreNamed) {
  const std::string header = "# comment\nkind,heads,kv_heads,prefix,tree,best_us,bound_us,by\n";
  EXPECT_EQ(read_anchors(header + "verify,32,8,1024,64,2.5,1.36,Somebody\n").size(), 1u);
  for (const char* line : {"verify,32,8,1024,64,2.5,1.36", "verify,32,8,1024,64,x,1.36,Somebody",
                           "other,32,8,1024,64,2.5,1.36,Somebody", "verify,32,8,,64,2.5,1.36,S"}) {
    EXPECT_THROW(read_anchors(header + line + "\n"), Error) << line;
  }
}

}  // namespace
}  // namespace coppice::bench
