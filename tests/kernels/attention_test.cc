#include "kernels/cpu/attention.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <utility>

#include "base/tree_order.h"
#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/workers.h"
#include "kernels/random_values.h"
#include "reference/attention_reference.h"
#include "reference/sanitized.h"
#include "reference/segments.h"

namespace coppice {
namespace {

struct Case {
  std::int32_t kv_heads = 2, group = 2, head_dim = 128, page_size = 16;
  std::int32_t prefix = 0, rows = 1, reach = 4;
  int threads = 2;
  DType kv_dtype = DType::f32;
};

/// One attention call with everything it needs: random q, keys and values, shuffled slots.
struct Problem {
  Case shape;
  KvLayout layout;
  std::int32_t layer = 1;
  std::int32_t heads;
  std::int64_t q_stride;
  float scale;
  std::vector<VisibleKv> kv;
  std::vector<float> q, keys, values;
  std::vector<std::uint16_t> stored_keys, stored_values;  ///< of 16-bit types
  AttentionPlan plan;

  Problem(const Case& c, std::uint32_t seed) : shape(c) {
    std::mt19937 random(seed);
    const std::int32_t tokens = c.prefix + c.rows;
    layout = {2, c.kv_heads, c.head_dim, c.page_size, (tokens + c.page_size - 1) / c.page_size + 1};
    heads = c.kv_heads * c.group;
    q_stride = (heads + 2 * c.kv_heads) * c.head_dim;
    scale = 1.0f / std::sqrt(static_cast<float>(c.head_dim));
    std::vector<KvSlot> slots(static_cast<std::size_t>(layout.slots()));
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), random);

    TreeOrder order;
    const TokenTree tree = testing::random_tree(c.rows, c.reach, random);
    order.assign(tree);
    for (std::int32_t t = 0; t < tokens; ++t) {
      const std::int32_t row = t - c.prefix;
      const std::int32_t end =
          row < 0 ? c.rows : row + order.subtree_rows[static_cast<std::size_t>(row)];
      const std::int32_t node = row < 0 ? 0 : order.node_of_row[static_cast<std::size_t>(row)];
      const std::int32_t position =
          row < 0 ? t : c.prefix + tree.depth[static_cast<std::size_t>(node)];
      kv.push_back({slots[static_cast<std::size_t>(t)], std::max(row, 0), end, position});
    }
    plan.assign(testing::segments_of(kv), c.rows, AttentionDivision::flatten);
    q = testing::random_floats(c.rows * q_stride, random, 3.0f);
    const std::int64_t pool =
        std::int64_t{layout.layers} * layout.slots() * c.kv_heads * c.head_dim;
    keys = testing::random_floats(pool, random);
    values = testing::random_floats(pool, random);
    if (c.kv_dtype == DType::f32) return;
    // The oracle is told what the storage holds, so that nothing is allowed for rounding to it.
    const auto store = [&](std::vector<float>& exact, std::vector<std::uint16_t>& stored) {
      stored = testing::stored_as(c.kv_dtype, exact);
      for (std::size_t i = 0; i < exact.size(); ++i) {
        exact[i] = testing::stored_value(c.kv_dtype, stored[i]);
      }
    };
    store(keys, stored_keys);
    store(values, stored_values);
  }

  const void* pool(const std::vector<float>& exact,
                   const std::vector<std::uint16_t>& stored) const {
    return shape.kv_dtype == DType::f32 ? static_cast<const void*>(exact.data()) : stored.data();
  }
  const void* key_pool() const { return pool(keys, stored_keys); }
  const void* value_pool() const { return pool(values, stored_values); }

  std::vector<float> run(int threads) const {
    std::vector<float> out(static_cast<std::size_t>(shape.rows * heads * shape.head_dim), NAN);
    cpu::Workers workers(threads);
    cpu::AttentionEngine engine(workers);
    engine.run(plan, {}, q.data(), q_stride, heads, {scale}, layout, shape.kv_dtype, key_pool(),
               value_pool(), layer, DType::f32, out.data());
    return out;
  }
  testing::AttentionReference reference() const {
    return testing::attention_reference(kv, shape.rows, q.data(), q_stride, heads, {scale}, layout,
                                        keys.data(), values.data(), layer);
  }
};

void check(const Case& c, std::uint32_t seed) {
  SCOPED_TRACE(::testing::Message()
               << c.kv_heads << " KV heads, group " << c.group << ", head_dim " << c.head_dim
               << ", page " << c.page_size << ", prefix " << c.prefix << ", rows " << c.rows
               << ", reach " << c.reach << ", KV " << name_of(c.kv_dtype));
  const Problem problem(c, seed);
  EXPECT_LE(testing::worst_error(problem.run(c.threads), problem.reference()), 1.0);
}

TEST(Attention, RandomTreesOfAllShapes) {
  std::mt19937 random(7);
  const auto pick = [&](std::initializer_list<std::int32_t> of) {
    return of.begin()[std::uniform_int_distribution<std::size_t>(0, of.size() - 1)(random)];
  };
  constexpr std::array types = {DType::f32, DType::bf16, DType::f16};
  for (std::uint32_t round = 0; round < (testing::sanitized ? 150u : 450u); ++round) {
    Case c;
    c.kv_heads = pick({1, 2, 3});
    c.group = pick({1, 2, 4, 8});
    c.head_dim = pick({64, 80, 96, 128, 192, 256, 16, 48, 8, 6, 50});
    c.page_size = pick({1, 16, 64, 24});
    c.prefix = pick({0, 1, 17, 100, 130});
    c.rows = std::uniform_int_distribution<std::int32_t>(1, 64)(random);
    c.reach = pick({1, 3, 1000});
    c.threads = pick({1, 2, 3});
    c.kv_dtype = types[round % types.size()];
    check(c, round);
  }
}

TEST(Attention, EveryRowCountOfTheCommonShape) {
  for (std::int32_t rows = 1; rows <= 64; ++rows) {
    const auto seed = static_cast<std::uint32_t>(rows);
    check({.prefix = 90, .rows = rows}, seed);
    check({.kv_heads = 1, .prefix = 90, .rows = rows}, seed);
    check({.prefix = 90, .rows = rows, .kv_dtype = DType::bf16}, seed);
    check({.kv_heads = 1, .prefix = 90, .rows = rows, .kv_dtype = DType::f16}, seed);
  }
}

TEST(Attention, OtherDivisions) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    Problem problem({.prefix = static_cast<std::int32_t>(seed % 4 * 450),
                     .rows = static_cast<std::int32_t>(1 + seed * 7 % 40),
                     .reach = seed % 3 == 0 ? 1 : 9},
                    seed);
    for (const auto division :
         {AttentionDivision::node, AttentionDivision::node_chunk, AttentionDivision::subtree}) {
      problem.plan.assign(testing::segments_of(problem.kv), problem.shape.rows, division);
      EXPECT_LE(testing::worst_error(problem.run(2), problem.reference()), 1.0)
          << "seed " << seed << ", division " << static_cast<int>(division);
    }
  }
}

TEST(Attention, AnyGroupSize) {
  for (std::int32_t group = 1; group <= 16; ++group) {
    check({.kv_heads = 1, .group = group, .head_dim = 64, .prefix = 40, .rows = 9}, 3);
    check({.kv_heads = 1, .group = group, .head_dim = 64, .prefix = 40, .rows = 1}, 3);
  }
}

TEST(Attention, LongPrefixes) {
  for (const std::int32_t prefix : {1000, 4096}) {
    check({.prefix = prefix, .rows = 1}, 11);
    check({.prefix = prefix, .rows = 21}, 12);
    check({.kv_heads = 1, .group = 4, .head_dim = 64, .prefix = prefix, .rows = 7}, 13);
    for (const DType kv : {DType::bf16, DType::f16}) {
      check({.prefix = 2 * prefix, .rows = 1, .kv_dtype = kv}, 16);
      check({.prefix = 2 * prefix, .rows = 21, .kv_dtype = kv}, 17);
    }
  }
}

TEST(Attention, ChunksSharedOutAmongWorkers) {
  for (const std::int32_t rows : {1, 5, 40}) {
    check({.kv_heads = 1, .prefix = 1400, .rows = rows, .threads = 8}, 14);
    check({.kv_heads = 1, .head_dim = 20, .prefix = 1400, .rows = rows, .threads = 8}, 15);
  }
}

TEST(Attention, PrefillChains) {
  check({.prefix = 0, .rows = 256, .reach = 1}, 21);
  check({.kv_heads = 1, .prefix = 300, .rows = 256, .reach = 1}, 22);
  check({.kv_heads = 1, .head_dim = 80, .prefix = 3, .rows = 200, .reach = 1}, 23);
}

TEST(Attention, LargeScoresDoNotOverflow) {
  Problem problem({.prefix = 70, .rows = 12}, 5);
  for (float& v : problem.q) v *= 1000.0f;
  EXPECT_LE(testing::worst_error(problem.run(2), problem.reference()), 1.0);
}

TEST(Attention, SameBitsAtAnyNumberOfThreads) {
  const Problem problem({.prefix = 300, .rows = 40}, 6);
  const auto one = problem.run(1);
  EXPECT_EQ(one, problem.run(2));
  EXPECT_EQ(one, problem.run(5));
}

TEST(Attention, Bf16OutputIsTheRoundedF32Output) {
  for (const int threads : {1, 3}) {  // whole items, and joined ones
    const Problem problem({.prefix = 100, .rows = 13}, 8);
    const auto exact = problem.run(threads);
    std::vector<std::uint16_t> rounded(exact.size());
    cpu::Workers workers(threads);
    cpu::AttentionEngine engine(workers);
    engine.run(problem.plan, {}, problem.q.data(), problem.q_stride, problem.heads, {problem.scale},
               problem.layout, DType::f32, problem.key_pool(), problem.value_pool(), problem.layer,
               DType::bf16, rounded.data());
    for (std::size_t i = 0; i < exact.size(); ++i) {
      ASSERT_EQ(rounded[i], testing::nearest_bf16(exact[i])) << i;
    }
  }
}

// A query that sees one token gets its value back.
TEST(Attention, WidensEveryNumberOf16BitsExactly) {
  constexpr std::int32_t patterns = 1 << 16;
  for (const DType type : {DType::bf16, DType::f16}) {
    // Narrow tiles, wide tiles, and heads of no multiple of 16.
    for (const auto& [group, head_dim] : {std::pair{1, 8192}, {16, 8192}, {1, 8200}}) {
      SCOPED_TRACE(::testing::Message() << name_of(type) << ", " << group << ", " << head_dim);
      const KvLayout layout{1, (patterns + head_dim - 1) / head_dim, head_dim, 1, 1};
      const std::int32_t heads = layout.kv_heads * group;
      const std::int64_t width = std::int64_t{heads} * head_dim;
      const auto size = static_cast<std::size_t>(layout.kv_heads * head_dim);
      std::vector<std::uint16_t> keys(size, 0), values(size);
      for (std::size_t i = 0; i < size; ++i) values[i] = static_cast<std::uint16_t>(i);
      const std::vector<float> q(static_cast<std::size_t>(width), 1.0f);
      std::vector<float> out(q.size());
      const std::vector<VisibleKv> kv = {{0, 0, 1}};
      AttentionPlan plan;
      plan.assign(testing::segments_of(kv), 1, AttentionDivision::flatten);
      cpu::Workers workers(1);
      cpu::AttentionEngine engine(workers);
      engine.run(plan, {}, q.data(), width, heads, {1.0f}, layout, type, keys.data(), values.data(),
                 0, DType::f32, out.data());
      for (std::size_t i = 0; i < out.size(); ++i) {
        const auto dim = static_cast<std::size_t>(head_dim);
        const std::size_t kv_head = i / dim / static_cast<std::size_t>(group);
        const float wanted = testing::stored_value(type, values[kv_head * dim + i % dim]);
        if (std::isnan(wanted)) continue;
        ASSERT_EQ(out[i], wanted) << i;
      }
    }
  }
}

// The check above must see these faults.

TEST(AttentionFaults, MaskIgnored) {
  Problem problem({.prefix = 30, .rows = 20}, 31);
  for (AttentionPlan::Chunk& chunk : problem.plan.chunks) chunk.full = true;
  EXPECT_GT(testing::worst_error(problem.run(2), problem.reference()), 10.0);
}

TEST(AttentionFaults, IntervalOneTooLong) {
  Problem problem({.prefix = 30, .rows = 20}, 32);
  for (std::size_t t = 30; t < problem.plan.slot.size(); ++t) {
    if (problem.plan.q_end[t] < 20) {
      ++problem.plan.q_end[t];
      break;
    }
  }
  EXPECT_GT(testing::worst_error(problem.run(2), problem.reference()), 10.0);
}

TEST(AttentionFaults, ChunkDroppedFromTheReduction) {
  Problem problem({.prefix = 300, .rows = 4}, 33);
  // The last query takes its first partial result twice and its second not at all.
  auto& plan = problem.plan;
  const auto first = static_cast<std::size_t>(plan.reduce_begin[3]);
  ASSERT_GT(plan.reduce_begin[4] - plan.reduce_begin[3], 1);
  plan.partial_of[first + 1] = plan.partial_of[first];
  EXPECT_GT(testing::worst_error(problem.run(3), problem.reference()), 10.0);
}

TEST(AttentionFaults, MaximaLeftOut) {
  const Problem problem({.prefix = 300, .rows = 4}, 34);
  const std::int64_t dim = problem.layout.head_dim;
  const auto pairs = static_cast<std::size_t>(problem.plan.partials * problem.heads);
  std::vector<float> partial_out(pairs * static_cast<std::size_t>(dim));
  std::vector<float> partial_maximum(pairs), partial_sum(pairs);
  constexpr std::int32_t longest = position_group + 4;
  std::vector<float> scratch(
      static_cast<std::size_t>(cpu::attention_scratch_floats(problem.layout.head_dim, longest)));
  std::vector<float> out(static_cast<std::size_t>(4 * problem.heads * dim));
  const std::int64_t layer_floats =
      std::int64_t{problem.layout.slots()} * problem.layout.kv_heads * dim;
  const cpu::AttentionCall call{&problem.plan,
                                problem.q.data(),
                                problem.q_stride,
                                problem.heads,
                                problem.shape.group,
                                {problem.scale},
                                nullptr,
                                &problem.layout,
                                problem.keys.data() + problem.layer * layer_floats,
                                problem.values.data() + problem.layer * layer_floats,
                                DType::f32,
                                false,
                                DType::f32,
                                out.data(),
                                longest,
                                partial_out.data(),
                                partial_maximum.data(),
                                partial_sum.data()};
  const auto attend = [&] {
    for (std::int32_t c = 0; c < static_cast<std::int32_t>(problem.plan.chunks.size()); ++c) {
      for (std::int32_t h = 0; h < problem.layout.kv_heads; ++h) {
        cpu::attend(call, {0, 0, 4 * problem.shape.group, c, c + 1, false, 0}, h, scratch.data());
      }
    }
  };
  attend();
  cpu::join_partials(call, 0, 4, 0);
  EXPECT_LE(testing::worst_error(out, problem.reference()), 1.0);
  attend();
  std::fill(partial_maximum.begin(), partial_maximum.end(), 0.0f);
  cpu::join_partials(call, 0, 4, 0);
  EXPECT_GT(testing::worst_error(out, problem.reference()), 10.0);
}

}  // namespace
}  // namespace coppice
