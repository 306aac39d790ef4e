#include "workload.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace coppice::bench {
namespace {

constexpr RowOrder all_orders[] = {RowOrder::added, RowOrder::breadth_first, RowOrder::depth_first,
                                   RowOrder::heavy_path};

TokenTree chain(std::int32_t nodes) {
  TokenTree tree;
  tree.reset(0);
  for (std::int32_t node = 1; node < nodes; ++node) tree.add(node - 1, node, 0, 0.5f, 0.5);
  return tree;
}

/// Two levels of 1 and 2 nodes of 18 tokens above 4 texts.
Cell shared_cell() {
  Cell cell{Kind::forest, 8, 2, 4 * 20, 4 * 3, 4};
  cell.levels = {{1, 18}, {2, 18}};
  return cell;
}

void expect_valid_slots(const Workload& work) {
  std::set<KvSlot> slots(work.prefix.begin(), work.prefix.end());
  slots.insert(work.tail_slots.begin(), work.tail_slots.end());
  EXPECT_EQ(std::ssize(slots), work.tokens());
  EXPECT_GE(*slots.begin(), 0);
  EXPECT_LT(*slots.rbegin(), work.layout(1).slots());
}

TEST(TreeAttentionWorkload, TreesAreValid) {
  std::mt19937 random(1);
  for (const std::int32_t nodes : {1, 2, 64, 768}) {
    const TokenTree grown = dyspec_like_tree(nodes, random);
    EXPECT_EQ(grown.nodes(), nodes);
    EXPECT_NO_THROW(grown.validate(nodes));
    const TokenTree uniform = uniform_tree(nodes, random);
    EXPECT_EQ(uniform.nodes(), nodes);
    EXPECT_NO_THROW(uniform.validate(nodes));
  }
  // Neither a chain nor a star.
  const TokenTree tree = dyspec_like_tree(256, random);
  EXPECT_GT(tree.height(), 5);
  EXPECT_LT(tree.height(), 100);
}

TEST(TreeAttentionWorkload, SlotsAreDistinctAndContiguousInPages) {
  for (const Cell& cell : {Cell{Kind::verify, 8, 2, 100, 40}, Cell{Kind::fewshot, 8, 2, 33, 3},
                           Cell{Kind::decode, 8, 2, 64, 1}, Cell{Kind::prefill, 8, 2, 0, 50},
                           Cell{Kind::forest, 8, 2, 5 * 20, 5 * 3, 5}, shared_cell()}) {
    const Workload work = make_workload(cell, 5);
    SCOPED_TRACE(cell.name());
    EXPECT_EQ(std::ssize(work.prefix), cell.shared());
    EXPECT_EQ(std::ssize(work.tail), cell.tail());
    EXPECT_EQ(std::ssize(work.tail_slots), cell.tail());
    expect_valid_slots(work);
    for (std::size_t t = 0; t < work.prefix.size(); ++t) {
      EXPECT_EQ(work.prefix[t] % 16, static_cast<KvSlot>(t % 16));
      if (t % 16 != 0) {
        EXPECT_EQ(work.prefix[t], work.prefix[t - 1] + 1);
      }
    }
    EXPECT_EQ(work.tail_slots.front() % 16, 0);
  }
}

TEST(TreeAttentionWorkload, IntervalsAreTheVisibility) {
  for (const Cell& cell : {Cell{Kind::verify, 8, 2, 10, 70}, Cell{Kind::fewshot, 8, 2, 10, 4},
                           Cell{Kind::decode, 8, 2, 10, 1}, Cell{Kind::prefill, 8, 2, 10, 30},
                           Cell{Kind::forest, 8, 2, 5 * 20, 5 * 3, 5}, shared_cell()}) {
    const Workload work = make_workload(cell, 6);
    for (std::int32_t token = 0; token < cell.tail(); ++token) {
      const VisibleKv& kv = work.tail[static_cast<std::size_t>(token)];
      EXPECT_EQ(kv.slot, work.tail_slots[static_cast<std::size_t>(token)]);
      for (std::int32_t query = 0; query < cell.rows; ++query) {
        ASSERT_EQ(work.visibility.sees(query, token), query >= kv.q_begin && query < kv.q_end)
            << cell.name() << " " << query << " " << token;
      }
    }
  }
}

// A row lies where its own token does, one behind the token before it on its path.
TEST(TreeAttentionWorkload, RowsLieByDepth) {
  for (const Cell& cell : {Cell{Kind::verify, 8, 2, 10, 70}, Cell{Kind::decode, 8, 2, 10, 1},
                           Cell{Kind::prefill, 8, 2, 10, 30},
                           Cell{Kind::forest, 8, 2, 5 * 20, 5 * 3, 5}, shared_cell()}) {
    const Workload work = make_workload(cell, 6);
    ASSERT_EQ(std::ssize(work.positions), cell.rows);
    for (std::int32_t query = 0; query < cell.rows; ++query) {
      std::int32_t last = cell.shared() - 1;
      for (std::int32_t token = 0; token < cell.tail(); ++token) {
        if (!work.visibility.sees(query, token)) continue;
        EXPECT_EQ(work.tail[static_cast<std::size_t>(token)].position, last + 1);
        last = work.tail[static_cast<std::size_t>(token)].position;
      }
      EXPECT_EQ(work.positions[static_cast<std::size_t>(query)], last);
    }
  }
}

// A text's queries see the tokens before it, and nobody else does.
TEST(TreeAttentionWorkload, TextsOfAForestLieApart) {
  const Workload work = make_workload({Kind::forest, 8, 2, 4 * 30, 4 * 3, 4}, 7);
  for (std::int32_t token = 0; token < 4 * 33; ++token) {
    for (std::int32_t query = 0; query < 12; ++query) {
      const bool same = token / 33 == query / 3;
      if (token % 33 < 30) {
        EXPECT_EQ(work.visibility.sees(query, token), same);
      } else {
        EXPECT_TRUE(same || !work.visibility.sees(query, token));
      }
    }
  }
}

// Below the prefix a node's tokens are seen by half of the texts; what each run has is of one node.
TEST(TreeAttentionWorkload, TextsOfAForestShareLevels) {
  const Workload work = make_workload(shared_cell(), 7);
  ASSERT_EQ(work.former.size(), 6u);
  std::int32_t begin = 0;
  for (std::int32_t text = 0; text < 4; ++text) {
    auto run = work.former.begin() + text + text / 2;
    if (text % 2 == 0) {
      EXPECT_EQ(run->begin, begin);
      EXPECT_EQ(run->end, begin += 18);
      for (std::int32_t token = run->begin; token < run->end; ++token) {
        for (std::int32_t query = 0; query < 12; ++query) {
          EXPECT_EQ(work.visibility.sees(query, token), query / 6 == text / 2);
        }
      }
      ++run;
    } else {
      ++run;
    }
    EXPECT_EQ(run->begin, begin);
    EXPECT_EQ(run->end, begin + 20);
    begin += 23;
  }
  EXPECT_EQ(begin, work.cell.tail());
}

// Whatever the order, a node's row sees as many tokens as its path has nodes, its own among them.
TEST(TreeAttentionWorkload, OrdersSeeTheSamePaths) {
  std::mt19937 random(7);
  for (const auto& tree : {dyspec_like_tree(90, random), uniform_tree(90, random), chain(90)}) {
    std::vector<std::int32_t> lengths;
    for (const std::int32_t depth : tree.depth) lengths.push_back(depth + 1);
    std::sort(lengths.begin(), lengths.end());
    for (const RowOrder order : all_orders) {
      const Workload work = make_tree_workload({Kind::verify, 8, 2, 0, 90}, tree, order, random);
      EXPECT_EQ(work.tail.empty(), order == RowOrder::added || order == RowOrder::breadth_first);
      std::vector<std::int32_t> seen;
      for (std::int32_t query = 0; query < 90; ++query) {
        ASSERT_TRUE(work.visibility.sees(query, query));
        std::int32_t count = 0;
        for (std::int32_t token = 0; token < 90; ++token) {
          if (work.visibility.sees(query, token)) {
            ++count;
            ASSERT_LE(token, query);  // parents come first in all of them
          }
        }
        seen.push_back(count);
      }
      std::sort(seen.begin(), seen.end());
      EXPECT_EQ(seen, lengths) << name_of(order);
    }
  }
}

TEST(TreeAttentionWorkload, BlocksByHand) {
  Visibility visibility(5, 6);
  EXPECT_EQ(count_blocks(visibility, 2, 4), 0);
  visibility.set(0, 0);
  visibility.set(1, 3);  // the same 2 x 4 block
  visibility.set(1, 4);
  visibility.set(4, 5);
  EXPECT_EQ(count_blocks(visibility, 2, 4), 3);
  EXPECT_EQ(count_blocks(visibility, 1, 1), 4);
  EXPECT_EQ(count_blocks(visibility, 8, 8), 1);
}

// A chain's mask is the lower triangle in every order; a tree's falls into fewer blocks.
TEST(TreeAttentionWorkload, DepthFirstOrderHasFewerBlocks) {
  std::mt19937 random(8);
  const Cell cell{Kind::verify, 8, 8, 0, 256};
  const auto blocks = [&](const TokenTree& tree, RowOrder order) {
    return count_blocks(make_tree_workload(cell, tree, order, random).visibility, 32, 32);
  };
  const TokenTree straight = chain(256);
  for (const RowOrder order : all_orders) EXPECT_EQ(blocks(straight, order), 36);
  for (const auto& tree : {dyspec_like_tree(256, random), uniform_tree(256, random)}) {
    EXPECT_LT(blocks(tree, RowOrder::depth_first), blocks(tree, RowOrder::breadth_first));
    EXPECT_LT(blocks(tree, RowOrder::heavy_path), blocks(tree, RowOrder::breadth_first));
  }
}

}  // namespace
}  // namespace coppice::bench
