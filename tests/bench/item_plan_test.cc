#include "item_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>

namespace coppice::bench {
namespace {

struct Method {
  const char* name;
  std::function<ItemPlan(const Workload&, CutLength)> make;
  bool any_order;
};

const Method methods[] = {{"flatten", plan_flatten, true},
                          {"nodes", plan_nodes, false},
                          {"radix", plan_radix, true},
                          {"blocks", plan_blocks, true}};

/// What the kernel computes from a plan, on the host: how often every (query, head) takes every
/// token, and how often every partial result is written.
struct Emulation {
  std::vector<int> covered;  ///< [query][head][token]
  std::vector<int> written;  ///< [partial row][head]
  bool well_formed = true;
};

Emulation emulate(const Workload& work, const ItemPlan& plan) {
  const std::int32_t heads = plan.shape.heads;
  const std::int32_t group = plan.group();
  std::map<KvSlot, std::int32_t> token_of_slot;
  for (const KvSlot slot : work.prefix) {
    token_of_slot.emplace(slot, static_cast<std::int32_t>(token_of_slot.size()));
  }
  for (const KvSlot slot : work.tail_slots) {
    token_of_slot.emplace(slot, static_cast<std::int32_t>(token_of_slot.size()));
  }
  Emulation result;
  result.covered.assign(static_cast<std::size_t>(plan.rows * heads * work.tokens()), 0);
  result.written.assign(static_cast<std::size_t>(plan.partial_rows * heads), 0);
  for (const Item& item : plan.items) {
    const std::int32_t first_query = item.row_begin / group;
    result.well_formed = result.well_formed && item.row_begin < item.row_end &&
                         item.row_end - item.row_begin <= plan.tile_rows &&
                         item.row_end <= plan.rows * group && item.kv_head >= 0 &&
                         item.kv_head < plan.shape.kv_heads && item.token_begin < item.token_end &&
                         item.token_begin <= item.first_masked &&
                         item.first_masked <= item.token_end;
    for (std::int32_t row = item.row_begin; row < item.row_end; ++row) {
      const std::int32_t query = row / group;
      const std::int32_t head = item.kv_head * group + row % group;
      const std::int32_t bit = query - first_query;
      result.well_formed = result.well_formed && bit < 64;
      ++result.written.at(static_cast<std::size_t>((query + item.partial_shift) * heads + head));
      for (std::int32_t at = item.token_begin; at < item.token_end; ++at) {
        const bool sees =
            at < item.first_masked ||
            (plan.masks.at(static_cast<std::size_t>(item.masks + at - item.first_masked)) >> bit &
             1) != 0;
        if (!sees) continue;
        const std::int32_t token = token_of_slot.at(plan.slots.at(static_cast<std::size_t>(at)));
        ++result.covered[static_cast<std::size_t>((query * heads + head) * work.tokens() + token)];
      }
    }
  }
  return result;
}

/// Each visible pair once, nothing else, and a list of exactly the partial results written.
void expect_exact(const Workload& work, const ItemPlan& plan) {
  const Emulation result = emulate(work, plan);
  EXPECT_TRUE(result.well_formed);
  const std::int32_t heads = plan.shape.heads;
  const auto prefix = static_cast<std::int32_t>(work.prefix.size());
  std::int64_t wrong = 0;
  for (std::int32_t query = 0; query < plan.rows; ++query) {
    for (std::int32_t head = 0; head < heads; ++head) {
      for (std::int32_t token = 0; token < work.tokens(); ++token) {
        const int expected = token < prefix || work.visibility.sees(query, token - prefix) ? 1 : 0;
        const auto at = static_cast<std::size_t>((query * heads + head) * work.tokens() + token);
        if (result.covered[at] != expected) ++wrong;
      }
    }
  }
  EXPECT_EQ(wrong, 0);

  std::vector<int> listed(static_cast<std::size_t>(plan.partial_rows), 0);
  for (const std::int32_t partial : plan.partials) ++listed.at(static_cast<std::size_t>(partial));
  for (std::int32_t partial = 0; partial < plan.partial_rows; ++partial) {
    for (std::int32_t head = 0; head < heads; ++head) {
      ASSERT_EQ(result.written[static_cast<std::size_t>(partial * heads + head)],
                listed[static_cast<std::size_t>(partial)]);
    }
    ASSERT_LE(listed[static_cast<std::size_t>(partial)], 1);
  }
  ASSERT_EQ(std::ssize(plan.partials_begin), plan.rows + 1);
  bool one_each = true;
  for (std::size_t query = 0; query < static_cast<std::size_t>(plan.rows); ++query) {
    const std::int32_t count = plan.partials_begin[query + 1] - plan.partials_begin[query];
    EXPECT_GE(count, 1);
    one_each = one_each && count == 1;
  }
  EXPECT_EQ(plan.direct, one_each);
  // A query's list names partial results of that query: its items say so.
  for (const Item& item : plan.items) {
    for (std::int32_t row = item.row_begin; row < item.row_end; ++row) {
      const auto query = static_cast<std::size_t>(row / plan.group());
      const auto begin = plan.partials.begin() + plan.partials_begin[query];
      const auto end = plan.partials.begin() + plan.partials_begin[query + 1];
      ASSERT_EQ(std::count(begin, end, static_cast<std::int32_t>(query) + item.partial_shift), 1);
    }
  }
}

TEST(ItemPlan, EveryCutCoversEveryVisiblePairOnce) {
  for (const auto& [heads, kv_heads] : {std::pair{4, 1}, {4, 4}, {16, 2}, {6, 2}}) {
    for (const Cell& cell :
         {Cell{Kind::verify, heads, kv_heads, 70, 33}, Cell{Kind::verify, heads, kv_heads, 0, 70},
          Cell{Kind::fewshot, heads, kv_heads, 40, 3}, Cell{Kind::decode, heads, kv_heads, 90, 1},
          Cell{Kind::prefill, heads, kv_heads, 20, 65},
          Cell{
              Kind::forest, heads, kv_heads, 4 * 30, 4 * 3, 4, 128, 0, 0.0f, {{1, 40}, {2, 40}}}}) {
      const Workload work = make_workload(cell, 9);
      for (const Method& method : methods) {
        for (const CutLength cut : {0, 1000, 64, 17}) {
          SCOPED_TRACE(::testing::Message() << cell.name() << " " << method.name << " " << cut);
          expect_exact(work, method.make(work, cut));
        }
      }
    }
  }
}

TEST(ItemPlan, AnyOrderIsCovered) {
  std::mt19937 random(10);
  const Cell cell{Kind::verify, 4, 2, 30, 120};
  for (const auto& tree : {dyspec_like_tree(120, random), uniform_tree(120, random)}) {
    for (const RowOrder order : {RowOrder::added, RowOrder::breadth_first, RowOrder::heavy_path}) {
      const Workload work = make_tree_workload(cell, tree, order, random);
      for (const Method& method : methods) {
        if (!method.any_order && work.tail.empty()) continue;
        SCOPED_TRACE(::testing::Message() << name_of(order) << " " << method.name);
        expect_exact(work, method.make(work, 64));
      }
    }
  }
}

// The emulation is able to fail: an item dropped, a token twice, a mask bit flipped.
TEST(ItemPlan, BrokenPlansAreNoticed) {
  const Workload work = make_workload({Kind::verify, 4, 1, 20, 12}, 11);
  const ItemPlan plan = plan_nodes(work, 0);
  const std::vector<int> good = emulate(work, plan).covered;
  ItemPlan broken = plan;
  broken.items.pop_back();
  EXPECT_NE(emulate(work, broken).covered, good);
  broken = plan;
  broken.slots[1] = broken.slots[0];
  EXPECT_NE(emulate(work, broken).covered, good);
  const ItemPlan masked = plan_flatten(work, 0);
  broken = masked;
  ASSERT_FALSE(broken.masks.empty());
  broken.masks.back() ^= 1;
  EXPECT_NE(emulate(work, broken).covered, emulate(work, masked).covered);
}

TEST(ItemPlan, KvBytesByHand) {
  // 3 branches of 400 tokens over 40; one KV head of 128 elements.
  const Workload work = make_workload({Kind::fewshot, 4, 1, 40, 3}, 12);
  const double token = 2 * 2 * 128;
  const double once = token * (40 + 1200);
  EXPECT_EQ(plan_flatten(work, 128).group_kv_bytes, once);
  EXPECT_EQ(plan_nodes(work, 0).group_kv_bytes, once);
  EXPECT_EQ(plan_nodes(work, 100).group_kv_bytes, once);
  EXPECT_EQ(plan_radix(work, 0).group_kv_bytes, token * 3 * (40 + 400));
  EXPECT_EQ(plan_flatten(work, 0).block_kv_bytes, once);  // 12 packed rows: one row tile
  // 33 queries of 4 heads are 132 packed rows: 3 row tiles over the prefix.
  const Workload tree = make_workload({Kind::verify, 4, 1, 100, 33}, 12);
  EXPECT_EQ(plan_flatten(tree, 0).group_kv_bytes, token * 133);
  EXPECT_GE(plan_flatten(tree, 0).block_kv_bytes, token * (3 * 100 + 33));
}

TEST(ItemPlan, NodesAreThePrefixAndRuns) {
  // Root 0 with a chain 1 - 2 and a leaf 3, in depth-first order.
  TokenTree tree;
  tree.reset(0);
  tree.add(0, 1, 0, 0.5f, 0.5);
  tree.add(1, 2, 0, 0.5f, 0.5);
  tree.add(0, 3, 1, 0.5f, 0.5);
  std::mt19937 random(13);
  const Workload work =
      make_tree_workload({Kind::verify, 1, 1, 50, 4}, tree, RowOrder::depth_first, random);
  std::vector<std::int32_t> lengths;
  for (const Item& item : plan_nodes(work, 0).items) {
    lengths.push_back(item.token_end - item.token_begin);
  }
  EXPECT_EQ(lengths, (std::vector<std::int32_t>{50, 2, 1, 1}));
  // Few-shot branches are one node each.
  EXPECT_EQ(plan_nodes(make_workload({Kind::fewshot, 1, 1, 50, 5}, 14), 0).items.size(), 6u);
}

TEST(ItemPlan, RadixHasOneQueryPerItem) {
  const Workload work = make_workload({Kind::verify, 8, 2, 200, 40}, 15);
  const ItemPlan plan = plan_radix(work, 64);
  EXPECT_EQ(plan.tile_rows, narrow_item_rows);
  EXPECT_TRUE(plan.masks.empty());
  for (const Item& item : plan.items) {
    EXPECT_EQ(item.row_end - item.row_begin, 4);
    EXPECT_LE(item.token_end - item.token_begin, 64);
  }
}

// Only KV tiles with something in them are listed.
TEST(ItemPlan, BlocksAreThoseThatAreCounted) {
  std::mt19937 random(16);
  const Cell cell{Kind::verify, 8, 8, 0, 300};
  const TokenTree tree = uniform_tree(300, random);
  for (const RowOrder order : {RowOrder::breadth_first, RowOrder::depth_first}) {
    const Workload work = make_tree_workload(cell, tree, order, random);
    std::int64_t tokens = 0;
    for (std::int32_t first = 0; first < 300; first += wide_item_rows) {
      for (std::int32_t tile = 0; tile < 300; tile += block_tokens) {
        bool seen = false;
        for (std::int32_t q = first; q < std::min(first + wide_item_rows, 300); ++q) {
          for (std::int32_t t = tile; t < std::min(tile + block_tokens, 300); ++t) {
            seen = seen || work.visibility.sees(q, t);
          }
        }
        if (seen) tokens += std::min(tile + block_tokens, 300) - tile;
      }
    }
    EXPECT_EQ(std::ssize(plan_blocks(work, 0).slots), tokens);
  }
}

}  // namespace
}  // namespace coppice::bench
