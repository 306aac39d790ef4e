#include "kernels/cuda/attention/flatten_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <random>
#include <vector>

#include "base/tree_order.h"
#include "kernels/random_values.h"
#include "reference/all_trees.h"
#include "reference/attention_reference.h"
#include "reference/emulated_attention.h"
#include "reference/growing_texts.h"

namespace coppice::flatten_plan_test {
namespace {

using testing::FlattenFault;

constexpr std::int32_t some_rows[] = {1, 2, 3, 5, 16, 17, 33, 64, 65, 129, 300, 1025};
constexpr std::int32_t some_groups[] = {1, 2, 3, 4, 7, 8, 16};
constexpr std::int32_t some_lengths[] = {0, 1, 63, 64, 65, 1000, 5000, 131072};
constexpr ResidentBlocks some_blocks[] = {{1, 1}, {7, 5}, {84, 168}, {792, 396}};

struct PlanCase {
  AttentionShape shape;
  std::int32_t rows, padded_rows, prefix;
  ResidentBlocks blocks;

  FlattenPlan plan() const {
    return make_flatten_plan(shape, rows, padded_rows, prefix, rows, blocks);
  }
  PartialCapacity capacity() const {
    return partial_capacity({padded_rows, padded_rows, prefix + rows, shape}, blocks);
  }
};

template <typename Visit>
void for_each_plan_case(Visit visit) {
  for (const std::int32_t group : some_groups) {
    for (const std::int32_t kv_heads : {1, 3, 8}) {
      for (const std::int32_t rows : some_rows) {
        for (const std::int32_t prefix : some_lengths) {
          for (const ResidentBlocks& blocks : some_blocks) {
            const PlanCase c{
                {group * kv_heads, kv_heads, 64}, rows, (rows + 7) / 8 * 8, prefix, blocks};
            SCOPED_TRACE(::testing::Message()
                         << group << " x " << kv_heads << " heads, " << rows << " rows, prefix "
                         << prefix << ", " << blocks.narrow << "/" << blocks.wide << " blocks");
            visit(c, c.plan());
          }
        }
      }
    }
  }
}

TEST(FlattenPlan, ChunksCoverTheTokensOnce) {
  for_each_plan_case([](const PlanCase& c, const FlattenPlan& plan) {
    ASSERT_EQ(plan.chunk_tokens % chunk_step, 0);
    std::int32_t next = 0;
    for (std::int32_t chunk = 0; chunk < plan.chunks; ++chunk) {
      const IndexRange tokens = plan.tokens_of(chunk);
      ASSERT_EQ(tokens.begin, next);
      ASSERT_FALSE(tokens.empty());
      ASSERT_LE(tokens.end - tokens.begin, plan.chunk_tokens);
      next = tokens.end;
    }
    ASSERT_EQ(next, c.prefix + c.rows);
  });
}

TEST(FlattenPlan, ItemsTakeFewRowsOverFewTokens) {
  ResidentBlocks blocks{792, 396, 132};
  const auto kernel = [&](std::int32_t rows, std::int32_t heads, std::int32_t tokens) {
    return attention_kernel_for({heads, heads, 128}, rows, tokens, blocks);
  };
  EXPECT_EQ(kernel(1, 12, 100), AttentionKernel::items);
  EXPECT_EQ(kernel(17, 12, 100), AttentionKernel::items);
  EXPECT_EQ(kernel(32, 32, 1024), AttentionKernel::items);
  EXPECT_EQ(kernel(32, 32, 2048), AttentionKernel::ranges);
  EXPECT_EQ(kernel(33, 12, 100), AttentionKernel::ranges);
  blocks.ranges = 0;
  EXPECT_EQ(kernel(33, 12, 100), AttentionKernel::items);
}

TEST(FlattenPlan, ItemsTakeFewQueriesOfHeadsThatShareKeys) {
  const ResidentBlocks blocks{792, 396, 132};
  const auto kernel = [&](std::int32_t rows, std::int32_t kv_heads, std::int32_t tokens) {
    return attention_kernel_for({32, kv_heads, 128}, rows, tokens, blocks);
  };
  EXPECT_EQ(kernel(16, 8, 1024), AttentionKernel::items);
  EXPECT_EQ(kernel(17, 8, 1024), AttentionKernel::ranges);
  EXPECT_EQ(kernel(4, 4, 1024), AttentionKernel::items);
  EXPECT_EQ(kernel(8, 4, 1024), AttentionKernel::ranges);
  // The fewer tokens, the more packed rows there are.
  EXPECT_EQ(kernel(16, 8, 2048), AttentionKernel::ranges);
  EXPECT_EQ(kernel(8, 8, 6144), AttentionKernel::items);
  EXPECT_EQ(kernel(8, 8, 6145), AttentionKernel::ranges);
}

TEST(FlattenPlan, PartialResultsStayWithinCapacity) {
  for_each_plan_case([](const PlanCase& c, const FlattenPlan& plan) {
    if (plan.chunks == 1) return;
    ASSERT_LE(plan.partial(plan.rows - 1, plan.heads() - 1, plan.chunks - 1), c.capacity().out - 1);
    ASSERT_LE(c.capacity().out, c.capacity().lse);
    ASSERT_LE(plan.items(), max_item_waves * c.blocks.of(plan.tile_rows));
    // One buffer serves shorter passes, too.
    const PassLimits limits{2048, 2048, 1 << 18, c.shape};
    ASSERT_LE(c.capacity().out, partial_capacity(limits, c.blocks).out);
    ASSERT_LE(c.capacity().lse, partial_capacity(limits, c.blocks).lse);
  });
}

// Per item, every packed row with every token of its chunk: each (query, head, token) once, and
// partial results of their own.
TEST(FlattenPlan, ItemsCoverEveryPairOnce) {
  for (const std::int32_t group : some_groups) {
    for (const std::int32_t rows : {1, 2, 5, 17, 40}) {
      for (const std::int32_t prefix : {0, 30, 200}) {
        const PlanCase c{{group * 2, 2, 64}, rows, rows, prefix, {40, 30}};
        const FlattenPlan plan = c.plan();
        const std::int32_t tokens = prefix + rows;
        std::vector<int> covered(static_cast<std::size_t>(rows * plan.heads() * tokens), 0);
        std::vector<int> partials(static_cast<std::size_t>(rows * plan.heads() * plan.chunks), 0);
        for (std::int32_t i = 0; i < plan.items(); ++i) {
          const FlattenItem item = plan.item(i);
          ASSERT_LT(item.kv_head, 2);
          const std::int32_t first = item.row_tile * plan.tile_rows;
          const IndexRange queries = plan.queries_of(first, plan.tile_rows);
          std::int32_t last_query = -1;
          for (std::int32_t row = first; row < first + plan.tile_rows; ++row) {
            if (row >= plan.packed_rows()) break;
            const std::int32_t query = plan.query_of(row);
            const std::int32_t head = plan.head_of(item.kv_head, row);
            ASSERT_GE(query, queries.begin);
            last_query = query;
            ASSERT_EQ(head / group, item.kv_head);
            ++partials[static_cast<std::size_t>(plan.partial(query, head, item.chunk))];
            const IndexRange chunk = plan.tokens_of(item.chunk);
            for (std::int32_t t = chunk.begin; t < chunk.end; ++t) {
              ++covered[static_cast<std::size_t>((query * plan.heads() + head) * tokens + t)];
            }
          }
          ASSERT_EQ(plan.query_of(first), queries.begin);
          ASSERT_EQ(last_query + 1, queries.end);
        }
        EXPECT_EQ(std::count(covered.begin(), covered.end(), 1), std::ssize(covered));
        EXPECT_EQ(std::count(partials.begin(), partials.end(), 1), std::ssize(partials));
      }
    }
  }
}

TEST(FlattenPlan, RowTileFollowsFromThePaddedRows) {
  EXPECT_EQ(row_tile_for(4, 4), narrow_row_tile);
  EXPECT_EQ(row_tile_for(5, 4), wide_row_tile);
  const AttentionShape shape{8, 2, 64};
  EXPECT_EQ(make_flatten_plan(shape, 1, 4, 100, 1, {9, 9}).tile_rows, narrow_row_tile);
  EXPECT_EQ(make_flatten_plan(shape, 1, 8, 100, 1, {9, 9}).tile_rows, wide_row_tile);
}

TEST(FlattenPlan, LongPrefixesKeepTheDeviceBusy) {
  const ResidentBlocks blocks{792, 396};
  for (const std::int32_t prefix : {8192, 32768, 131072}) {
    for (const std::int32_t rows : {1, 4, 16, 64}) {
      const FlattenPlan plan = make_flatten_plan({32, 8, 128}, rows, rows, prefix, rows, blocks);
      const std::int64_t resident = blocks.of(plan.tile_rows);
      const std::int64_t waves = (plan.items() + resident - 1) / resident;
      const double even =
          static_cast<double>(prefix + rows) * 8 * plan.row_tiles() / static_cast<double>(resident);
      EXPECT_LE(static_cast<double>(waves * plan.chunk_tokens), 1.5 * even + chunk_step)
          << prefix << " tokens, " << rows << " rows: " << plan.chunks << " chunks of "
          << plan.chunk_tokens;
    }
  }
}

TEST(FlattenPlan, LongestSpanIsThatOfARowTile) {
  std::mt19937 random(4);
  std::vector<IndexRange> scratch;
  for (const std::uint32_t seed : {1u, 2u, 3u}) {
    testing::GrowingTexts texts(20, 60, seed);
    for (int step = 0; step < 100; ++step) {
      texts.step();
      const std::vector<VisibleKv> tokens = texts.tokens();
      const std::int32_t rows = texts.rows();
      for (const std::int32_t group : {1, 3}) {
        for (const std::int32_t prefix : {0, 5}) {
          std::int32_t longest = 0;
          for (std::int32_t first = 0; first < rows * group; first += 16) {
            const IndexRange queries{first / group,
                                     (std::min(first + 16, rows * group) - 1) / group + 1};
            IndexRange span{0, prefix};
            for (std::size_t t = 0; t < tokens.size(); ++t) {
              if (intersection({tokens[t].q_begin, tokens[t].q_end}, queries).empty()) continue;
              const std::int32_t at = prefix + static_cast<std::int32_t>(t);
              span = {span.empty() ? at : span.begin, at + 1};
            }
            longest = std::max(longest, span.end - span.begin);
          }
          ASSERT_EQ(longest_span(texts.segments(), prefix, rows, group, 16, scratch), longest);
        }
      }
    }
  }
}

// 64 texts of 256 tokens and four rows each: a row tile sees a quarter of the list.
TEST(FlattenPlan, TextsApartAreNotCutIntoChunksThatFewSee) {
  std::vector<KvSlot> slots(256);
  std::vector<KvSegment> tail;
  for (std::int32_t text = 0; text < 64; ++text) {
    tail.push_back({slots, 4 * text, 4 * text + 4, true, 0});
  }
  std::vector<IndexRange> scratch;
  const std::int32_t longest = longest_span(tail, 0, 256, 1, wide_row_tile, scratch);
  EXPECT_EQ(longest, 16 * 256);
  const ResidentBlocks blocks{432, 216};
  const AttentionShape shape{32, 32, 128};
  EXPECT_GT(make_flatten_plan(shape, 256, 256, 0, 64 * 256, blocks).chunks, 1);
  EXPECT_EQ(make_flatten_plan(shape, 256, 256, 0, 64 * 256, blocks, longest).chunks, 1);
  // Too few items for the blocks: chunks pay.
  EXPECT_GT(make_flatten_plan({4, 4, 128}, 256, 256, 0, 64 * 256, blocks, longest).chunks, 1);
}

// A window's plan begins where some row sees the prefix.
TEST(FlattenPlan, TokensOfAPrefixThatAWindowCuts) {
  const std::vector<KvSlot> slots = {9, 8, 7, 6, 5};
  const std::vector<VisibleKv> tail = {{3, 0, 1, 12}};
  FlattenPlan plan;
  plan.rows = 2;
  plan.prefix = 3;
  plan.prefix_begin = 2;
  plan.prefix_position = 9;
  plan.tail = 1;
  plan.chunk_tokens = 64;
  EXPECT_EQ(plan.tokens_of(0).end, 4);
  for (std::int32_t at = 0; at < 3; ++at) {
    const VisibleKv token = plan.token(slots.data(), tail.data(), at);
    EXPECT_EQ(token.slot, 7 - at);
    EXPECT_EQ(token.position, 9 + at);
    EXPECT_EQ(token.q_end, 2);
  }
  EXPECT_EQ(plan.token(slots.data(), tail.data(), 3).position, 12);
}

TEST(FlattenPlan, ShortPassesAreNotCut) {
  EXPECT_EQ(make_flatten_plan({32, 8, 128}, 1, 1, 60, 1, {792, 396}).chunks, 1);
  // More row tiles than resident blocks: the device is busy as it is.
  EXPECT_EQ(make_flatten_plan({32, 8, 128}, 2048, 2048, 0, 2048, {100, 100}).chunks, 1);
}

/// One pass with random operands in shuffled slots.
struct Problem {
  std::int32_t rows, group, kv_heads;
  KvLayout layout;
  std::int32_t layer = 1;
  std::int64_t q_stride;
  float scale = 0.5f;
  ResidentBlocks blocks;
  std::int32_t padded_rows;
  std::vector<KvSlot> prefix;
  std::vector<VisibleKv> tail;
  std::vector<float> q, keys, values;

  /// A prefix entry, and a tail token other than the root's, is a hole with probability
  /// `holes`.
  Problem(const TokenTree& tree, std::int32_t prefix_tokens, std::int32_t group_size,
          std::int32_t kv_head_count, const ResidentBlocks& resident, double holes,
          std::mt19937& random)
      : rows(tree.nodes()),
        group(group_size),
        kv_heads(kv_head_count),
        q_stride((group_size + 2) * kv_head_count * 8),
        blocks(resident),
        padded_rows(rows + static_cast<std::int32_t>(random() % 5)) {
    const std::int32_t tokens = prefix_tokens + rows;
    layout = {2, kv_heads, 8, 16, tokens / 16 + 2};
    std::vector<KvSlot> slots(static_cast<std::size_t>(layout.slots()));
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin() + 1, slots.end(), random);  // slot 0 is seen by nobody
    std::bernoulli_distribution hole(holes);
    TreeOrder order;
    order.assign(tree);
    for (std::int32_t t = 0; t < tokens; ++t) {
      const std::int32_t row = t - prefix_tokens;
      const KvSlot slot =
          row != 0 && hole(random) ? no_slot : slots[static_cast<std::size_t>(t + 1)];
      if (row < 0) {
        prefix.push_back(slot);
      } else {
        tail.push_back({slot, row, row + order.subtree_rows[static_cast<std::size_t>(row)]});
      }
    }
    q = testing::random_floats(rows * q_stride, random, 3.0f);
    const std::int64_t pool = std::int64_t{layout.layers} * layout.slots() * kv_heads * 8;
    keys = testing::random_floats(pool, random);
    values = testing::random_floats(pool, random);
  }

  AttentionShape shape() const { return {group * kv_heads, kv_heads, layout.head_dim}; }
  FlattenPlan plan() const {
    return make_flatten_plan(shape(), rows, padded_rows, static_cast<std::int32_t>(prefix.size()),
                             static_cast<std::int32_t>(tail.size()), blocks);
  }

  /// Largest error as a multiple of what f32 would be allowed: correct is at most 1.
  double error(FlattenFault fault) const {
    testing::EmulatedPass pass{plan(), prefix, tail, 0, 0};
    pass.grid = blocks.of(pass.plan.tile_rows);
    pass.partial_capacity =
        partial_capacity(
            {rows, rows, static_cast<std::int32_t>(prefix.size() + tail.size()), shape()}, blocks)
            .out;
    const auto out = testing::emulate_attention(pass, q.data(), q_stride, scale, layout,
                                                keys.data(), values.data(), layer, fault);
    std::vector<VisibleKv> kv;
    for (const KvSlot slot : prefix) kv.push_back({slot, 0, rows});
    kv.insert(kv.end(), tail.begin(), tail.end());
    for (VisibleKv& token : kv) {
      if (token.slot == no_slot) token.q_end = token.q_begin;
    }
    const auto reference =
        testing::attention_reference(kv, rows, q.data(), q_stride, shape().heads, {scale}, layout,
                                     keys.data(), values.data(), layer);
    double worst = 0;
    for (std::size_t i = 0; i < out.size(); ++i) {
      const double ratio = std::abs(out[i] - reference.out[i]) / reference.tolerance[i];
      if (!(ratio <= worst)) worst = std::isnan(ratio) ? INFINITY : ratio;
    }
    return worst;
  }
};

TEST(FlattenEmulation, EveryTreeOfUpToSixNodes) {
  std::mt19937 random(1);
  for (std::int32_t nodes = 1; nodes <= 6; ++nodes) {
    testing::for_each_tree(nodes, [&](const TokenTree& tree) {
      // Three chunks and more end before, in and behind the tree.
      for (const std::int32_t prefix : {0, 3, 64, 124, 126, 128, 189, 192}) {
        for (const std::int32_t group : {1, 4}) {
          const Problem problem(tree, prefix, group, 1, {300, 200}, 0.1, random);
          ASSERT_EQ(problem.plan().chunks > 1, prefix + nodes > 128);
          ASSERT_LE(problem.error(FlattenFault::none), 1.0) << nodes << " nodes, " << prefix;
        }
      }
    });
  }
}

TEST(FlattenEmulation, RandomTrees) {
  std::mt19937 random(2);
  const auto draw = [&](std::int32_t low, std::int32_t high) {
    return std::uniform_int_distribution<std::int32_t>(low, high)(random);
  };
  for (int round = 0; round < 200; ++round) {
    const std::int32_t reach = draw(0, 2) == 0 ? 1 : draw(2, 200);
    const auto tree = testing::random_tree(draw(1, 200), reach, random);
    const ResidentBlocks blocks{draw(1, 800), draw(1, 400)};
    const Problem problem(tree, draw(0, 400), draw(1, 16), draw(1, 3), blocks, 0.2, random);
    ASSERT_LE(problem.error(FlattenFault::none), 1.0) << "round " << round;
  }
}

// The checks above must see these faults.

TEST(FlattenFaults, AreAllNoticed) {
  std::mt19937 random(3);
  // Several row tiles, the first of which see nothing of the last chunks.
  const auto tree = testing::random_tree(150, 150, random);
  const Problem problem(tree, 100, 4, 2, {64, 200}, 0.2, random);
  ASSERT_GT(problem.plan().chunks, 2);
  ASSERT_LE(problem.error(FlattenFault::none), 1.0);
  for (const FlattenFault fault :
       {FlattenFault::interval_one_longer, FlattenFault::interval_one_later,
        FlattenFault::hole_attended, FlattenFault::chunk_one_longer, FlattenFault::span_one_short,
        FlattenFault::tile_one_row_short, FlattenFault::heads_not_packed,
        FlattenFault::last_partial_left_out, FlattenFault::log_sum_exp_left_out,
        FlattenFault::unseen_partial_joined, FlattenFault::last_item_left_out}) {
    EXPECT_GT(problem.error(fault), 10.0) << "fault " << static_cast<int>(fault);
  }
}

}  // namespace
}  // namespace coppice::flatten_plan_test
