// Attention by windows and with soft caps, on the CPU, against the definition in double.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/tree_order.h"
#include "kernels/cpu/attention.h"
#include "kernels/cpu/workers.h"
#include "kernels/random_values.h"
#include "kernels/window.h"
#include "reference/attention_reference.h"
#include "reference/sanitized.h"

namespace coppice::attention_window_test {
namespace {

struct Case {
  std::int32_t kv_heads = 2, group = 2, head_dim = 64;
  std::int32_t texts = 1;
  std::int32_t prefix = 20;  ///< longest of a text's
  std::int32_t rows = 12;    ///< most of a text's
  std::int32_t reach = 3;    ///< of the random trees: 1 is a chain
  bool grown = false;        ///< part of a tree is of former passes, as in drafting
  double holes = 0.0;        ///< share of the prefix without a slot
  std::int32_t window = 8;
  float soft_cap = 0.0f;
  DType kv_dtype = DType::f32;
  float query_size = 3.0f;
};

/// A pass of texts over random keys and values, segment by segment as runners make them. No other
/// slot holds a number.
struct Problem {
  Case shape;
  KvLayout layout;
  std::int32_t layer = 1, heads, rows = 0;
  std::int64_t q_stride;
  AttentionRule rule;
  std::vector<std::vector<KvSlot>> text_slots;
  std::vector<KvSegment> segments;
  std::vector<std::int32_t> positions;
  std::vector<float> q, keys, values;
  std::vector<std::uint16_t> stored_keys, stored_values;

  Problem(const Case& c, std::uint32_t seed) : shape(c) {
    std::mt19937 random(seed);
    heads = c.kv_heads * c.group;
    q_stride = (heads + 2 * c.kv_heads) * c.head_dim;
    rule = {1.0f / std::sqrt(static_cast<float>(c.head_dim)), c.soft_cap, c.window};
    const std::int32_t tokens = c.texts * (c.prefix + c.rows);
    layout = {2, c.kv_heads, c.head_dim, 16, tokens / 16 + 1};
    std::vector<KvSlot> free(static_cast<std::size_t>(layout.slots()));
    std::iota(free.begin(), free.end(), 0);
    std::shuffle(free.begin(), free.end(), random);
    const auto pool =
        static_cast<std::size_t>(layout.layers * layout.slots() * c.kv_heads * c.head_dim);
    keys.assign(pool, NAN);
    values.assign(pool, NAN);
    text_slots.resize(static_cast<std::size_t>(c.texts));
    for (auto& slots : text_slots) add_text(slots, free, random);
    q = testing::random_floats(rows * q_stride, random, c.query_size);
    if (c.kv_dtype == DType::f32) return;
    const auto store = [&](std::vector<float>& exact, std::vector<std::uint16_t>& stored) {
      stored = testing::stored_as(c.kv_dtype, exact);
      for (std::size_t i = 0; i < exact.size(); ++i) {
        exact[i] = testing::stored_value(c.kv_dtype, stored[i]);
      }
    };
    store(keys, stored_keys);
    store(values, stored_values);
  }

  void add_text(std::vector<KvSlot>& slots, std::vector<KvSlot>& free, std::mt19937& random) {
    const auto up_to = [&](std::int32_t most) {
      return static_cast<std::int32_t>(random() % static_cast<unsigned>(most + 1));
    };
    // The longest for one text alone, so that a test knows its length.
    const std::int32_t prefix = shape.texts == 1 ? shape.prefix : up_to(shape.prefix);
    const std::int32_t nodes = shape.texts == 1 ? shape.rows : 1 + up_to(shape.rows - 1);
    std::bernoulli_distribution hole(shape.holes);
    const auto take = [&] {
      const KvSlot slot = free.back();
      free.pop_back();
      fill(slot, random);
      return slot;
    };
    for (std::int32_t t = 0; t < prefix; ++t) slots.push_back(hole(random) ? no_slot : take());
    for (std::int32_t t = 0; t < nodes; ++t) slots.push_back(take());
    const TokenTree tree = testing::random_tree(nodes, shape.reach, random);
    TreeOrder order;
    order.assign(tree);
    // Old nodes are closed under parents; rows of the pass are the others.
    std::vector<std::int32_t> rows_before = {0};
    std::vector<bool> old(static_cast<std::size_t>(nodes), false);
    for (std::int32_t r = 0; r < nodes; ++r) {
      const auto node = static_cast<std::size_t>(order.node_of_row[static_cast<std::size_t>(r)]);
      const std::int32_t parent = tree.parent[node];
      old[node] = shape.grown && (parent < 0 || old[static_cast<std::size_t>(parent)]) &&
                  r + 1 < nodes && random() % 3 != 0;
      rows_before.push_back(rows_before.back() + (old[node] ? 0 : 1));
    }
    const std::int32_t first = rows;
    rows += rows_before.back();
    const std::span<const KvSlot> all = slots;
    segments.push_back({all.first(static_cast<std::size_t>(prefix)), first, rows, true, 0});
    for (std::int32_t r = 0; r < nodes; ++r) {
      const auto row = static_cast<std::size_t>(r);
      const auto node = static_cast<std::size_t>(order.node_of_row[row]);
      const auto end = row + static_cast<std::size_t>(order.subtree_rows[row]);
      const std::int32_t position = prefix + tree.depth[node];
      if (!old[node]) positions.push_back(position);
      if (rows_before[row] == rows_before[end]) continue;
      segments.push_back({all.subspan(static_cast<std::size_t>(prefix + r), 1),
                          first + rows_before[row], first + rows_before[end], old[node], position});
    }
  }

  std::size_t place(KvSlot slot, std::int32_t kv_head) const {
    const std::int64_t page = std::int64_t{layer} * layout.pages + slot / layout.page_size;
    return static_cast<std::size_t>(
        ((page * layout.kv_heads + kv_head) * layout.page_size + slot % layout.page_size) *
        layout.head_dim);
  }
  void fill(KvSlot slot, std::mt19937& random) {
    for (std::int32_t head = 0; head < layout.kv_heads; ++head) {
      for (auto* pool : {&keys, &values}) {
        const auto row = testing::random_floats(layout.head_dim, random);
        std::copy(row.begin(), row.end(),
                  pool->begin() + static_cast<std::ptrdiff_t>(place(slot, head)));
      }
    }
  }
  void poison(KvSlot slot) {
    for (std::int32_t head = 0; head < layout.kv_heads; ++head) {
      const auto at = static_cast<std::ptrdiff_t>(place(slot, head));
      std::fill_n(keys.begin() + at, layout.head_dim, NAN);
      std::fill_n(values.begin() + at, layout.head_dim, NAN);
    }
  }

  std::vector<float> run(int threads = 2) const { return run(rule, positions, threads); }
  std::vector<float> run(const AttentionRule& by, std::span<const std::int32_t> row_positions,
                         int threads = 2) const {
    cpu::Workers workers(threads);
    std::vector<KvSegment> trimmed;
    trim_to_window(segments, row_positions, by.window, trimmed);
    AttentionPlan plan;
    plan.assign(trimmed, rows, AttentionDivision::flatten);
    std::vector<float> out(static_cast<std::size_t>(rows * heads * shape.head_dim), NAN);
    cpu::AttentionEngine engine(workers);
    const bool stored = shape.kv_dtype != DType::f32;
    engine.run(plan, row_positions, q.data(), q_stride, heads, by, layout, shape.kv_dtype,
               stored ? static_cast<const void*>(stored_keys.data()) : keys.data(),
               stored ? static_cast<const void*>(stored_values.data()) : values.data(), layer,
               DType::f32, out.data());
    return out;
  }
  testing::AttentionReference reference(
      testing::ScoreOrder order = testing::ScoreOrder::scale_then_cap) const {
    std::vector<VisibleKv> kv;
    for (const KvSegment& segment : segments) {
      std::int32_t position = segment.first_position;
      for (const KvSlot slot : segment.slots) {
        kv.push_back({slot, segment.q_begin, segment.q_end, position++});
      }
    }
    return testing::attention_reference(kv, rows, q.data(), q_stride, heads, rule, layout,
                                        keys.data(), values.data(), layer, positions, order);
  }
};

void check(const Case& c, std::uint32_t seed) {
  SCOPED_TRACE(::testing::Message()
               << c.texts << " texts, prefix " << c.prefix << ", rows " << c.rows << ", reach "
               << c.reach << (c.grown ? ", grown" : "") << ", window " << c.window << ", cap "
               << c.soft_cap << ", " << c.kv_heads << " x " << c.group << " heads of " << c.head_dim
               << ", KV " << name_of(c.kv_dtype) << ", seed " << seed);
  const Problem problem(c, seed);
  EXPECT_LE(testing::worst_error(problem.run(), problem.reference()), 1.0);
}

TEST(AttentionWindow, RandomPassesOfAllKinds) {
  std::mt19937 random(5);
  const auto pick = [&](std::initializer_list<std::int32_t> of) {
    return of.begin()[random() % of.size()];
  };
  constexpr std::array types = {DType::f32, DType::bf16, DType::f16};
  for (std::uint32_t round = 0; round < (testing::sanitized ? 100u : 300u); ++round) {
    Case c;
    c.kv_heads = pick({1, 2});
    c.group = pick({1, 2, 5, 8});
    c.head_dim = pick({16, 64, 80, 96, 128, 192, 256, 6, 50});
    c.texts = pick({1, 1, 2, 5});
    c.prefix = pick({0, 1, 17, 100, 300});
    c.rows = pick({1, 2, 9, 33, 64});
    c.reach = pick({1, 3, 1000});
    c.grown = random() % 3 == 0;
    c.holes = random() % 4 == 0 ? 0.2 : 0.0;
    c.window = pick({1, 2, 3, 7, 16, 40, 128, 1 << 30});
    c.soft_cap = random() % 3 == 0 ? 2.0f : 0.0f;
    c.kv_dtype = types[round % types.size()];
    check(c, round);
  }
}

// Every window from one token to more than the text, over a deep tree behind a short prefix: it
// ends in the tree, between both, and in the prefix.
TEST(AttentionWindow, EveryWidth) {
  for (std::int32_t window = 1; window <= 80; ++window) {
    check({.prefix = 30, .rows = 40, .reach = 2, .window = window}, 1);
    check({.prefix = 30, .rows = 40, .reach = 2, .grown = true, .window = window}, 2);
  }
}

TEST(AttentionWindow, PrefillChains) {
  for (const std::int32_t window : {1, 10, 64, 200}) {
    check({.prefix = 150, .rows = 256, .reach = 1, .window = window}, 3);
    check({.kv_heads = 1, .head_dim = 80, .prefix = 0, .rows = 200, .reach = 1, .window = window},
          4);
  }
}

TEST(AttentionWindow, OfOneTokenGivesItsOwnValue) {
  const Problem problem({.prefix = 40, .rows = 1, .window = 1}, 6);
  const auto out = problem.run();
  for (std::int32_t head = 0; head < problem.heads; ++head) {
    const std::size_t from = problem.place(problem.text_slots[0].back(), head / 2);
    for (std::size_t i = 0; i < 64; ++i) {
      EXPECT_EQ(out[static_cast<std::size_t>(head) * 64 + i], problem.values[from + i]);
    }
  }
}

TEST(AttentionWindow, WiderThanTheTextIsNone) {
  Problem problem({.texts = 3, .prefix = 60, .rows = 20}, 7);
  AttentionRule none = problem.rule;
  none.window = 0;
  problem.rule.window = 81;
  EXPECT_EQ(problem.run(), problem.run(none, problem.positions));
}

TEST(AttentionWindow, SoftCaps) {
  for (const float cap : {0.05f, 1.0f, 30.0f, 50.0f}) {
    for (const std::int32_t window : {0, 9}) {
      check({.prefix = 60, .rows = 20, .window = window, .soft_cap = cap}, 8);
      check({.head_dim = 256, .rows = 1, .window = window, .soft_cap = cap, .query_size = 90.0f},
            9);
      check({.head_dim = 50, .rows = 20, .window = window, .soft_cap = cap}, 10);
    }
  }
}

TEST(AttentionWindow, SameBitsAtAnyNumberOfThreads) {
  const Problem problem({.texts = 3, .prefix = 300, .rows = 40, .window = 50}, 11);
  const auto one = problem.run(1);
  EXPECT_EQ(one, problem.run(2));
  EXPECT_EQ(one, problem.run(5));
}

/// Positions by which a pass's tokens are summed up: their own, or a planted fault, their numbers
/// in the pass.
enum class GroupedBy { position, number };

std::vector<float> run_grouped(Problem problem, GroupedBy by, int threads) {
  if (by == GroupedBy::number) {
    std::int32_t tokens = 0;
    for (KvSegment& segment : problem.segments) {
      segment.first_position = tokens;
      tokens += static_cast<std::int32_t>(segment.slots.size());
    }
  }
  return problem.run(threads);
}

/// Output of row `row` when it is all that a pass has.
std::vector<float> alone(const Problem& problem, std::int32_t row, GroupedBy by, int threads) {
  Problem one = problem;
  one.segments.clear();
  for (KvSegment segment : problem.segments) {
    if (row < segment.q_begin || row >= segment.q_end) continue;
    segment.q_begin = 0;
    segment.q_end = 1;
    one.segments.push_back(segment);
  }
  one.rows = 1;
  one.positions = {problem.positions[static_cast<std::size_t>(row)]};
  one.q.assign(problem.q.begin() + row * problem.q_stride,
               problem.q.begin() + (row + 1) * problem.q_stride);
  return run_grouped(one, by, threads);
}

/// Rows whose output alone differs from that among all, of those looked at, in a bit.
std::int32_t rows_that_depend(const Problem& problem, int threads,
                              GroupedBy by = GroupedBy::position) {
  const auto among_all = run_grouped(problem, by, threads);
  const std::int64_t width = std::int64_t{problem.heads} * problem.shape.head_dim;
  std::int32_t differ = 0;
  for (std::int32_t row = 0; row<problem.rows; row += problem.rows> 20 ? 3 : 1) {
    const auto expected = alone(problem, row, by, 1 + row % 4);
    if (!std::equal(expected.begin(), expected.end(), among_all.begin() + row * width)) ++differ;
  }
  return differ;
}

TEST(AttentionWindow, RowsHaveTheSameBitsInEveryPass) {
  std::mt19937 random(15);
  const auto pick = [&](std::initializer_list<std::int32_t> of) {
    return of.begin()[random() % of.size()];
  };
  constexpr std::array types = {DType::f32, DType::bf16, DType::f16};
  for (std::uint32_t round = 0; round < (testing::sanitized ? 20u : 200u); ++round) {
    Case c;
    c.kv_heads = pick({1, 2});
    c.group = pick({1, 2, 5, 8});
    c.head_dim = pick({16, 64, 80, 128, 192, 50});
    c.texts = pick({1, 1, 2, 4});
    c.prefix = pick({0, 1, 60, 63, 64, 100, 300});
    c.rows = pick({1, 2, 9, 33, 150});
    c.reach = pick({1, 3, 1000});
    c.grown = random() % 3 == 0;
    c.holes = random() % 4 == 0 ? 0.2 : 0.0;
    c.window = pick({0, 0, 7, 40, 128});
    c.soft_cap = random() % 3 == 0 ? 2.0f : 0.0f;
    c.kv_dtype = types[round % types.size()];
    const int threads = pick({1, 2, 3, 7});
    const Problem problem(c, round);
    EXPECT_EQ(rows_that_depend(problem, threads), 0)
        << c.texts << " texts, prefix " << c.prefix << ", rows " << c.rows << ", reach " << c.reach
        << ", window " << c.window << ", " << c.kv_heads << " x " << c.group << " heads of "
        << c.head_dim << ", KV " << name_of(c.kv_dtype) << ", " << threads << " threads, seed "
        << round;
  }
}

// The check above must see that positions decide which tokens are summed up together.
TEST(AttentionWindow, TokensGroupedByTheirNumberDependOnThePass) {
  const Problem problem({.prefix = 100, .rows = 150, .reach = 1000, .window = 0}, 16);
  EXPECT_EQ(rows_that_depend(problem, 2), 0);
  EXPECT_GT(rows_that_depend(problem, 2, GroupedBy::number), 0);
}

// What a text has from before all its rows' windows is not in the plan.
TEST(AttentionWindow, TokensBeforeAllWindowsAreNotRead) {
  Problem problem({.texts = 3, .prefix = 500, .rows = 20, .window = 30}, 12);
  const auto expected = problem.reference();
  std::int32_t unread = 0;
  for (const KvSegment& segment : problem.segments) {
    if (segment.slots.size() < 2) continue;
    const auto row = problem.positions.begin() + segment.q_begin;
    const std::int32_t nearest = *std::min_element(row, problem.positions.begin() + segment.q_end);
    for (std::int32_t t = 0; t <= nearest - problem.rule.window; ++t, ++unread) {
      problem.poison(segment.slots[static_cast<std::size_t>(t)]);
    }
  }
  EXPECT_GT(unread, 300);
  EXPECT_LE(testing::worst_error(problem.run(), expected), 1.0);
}

// In a long prefill pass a row's window leaves most of the others out: their blocks are skipped.
TEST(AttentionWindow, BlocksBeforeARowsWindowAreNotRead) {
  Problem problem({.kv_heads = 1, .group = 1, .prefix = 0, .rows = 320, .reach = 1, .window = 20},
                  13);
  const auto expected = problem.reference();
  for (std::size_t t = 0; t < 64; ++t) problem.poison(problem.text_slots[0][t]);
  const auto out = problem.run();
  for (std::size_t i = 192 * 64; i < out.size(); ++i) {
    ASSERT_LE(std::abs(out[i] - expected.out[i]), expected.tolerance[i]) << i;
  }
}

TEST(AttentionWindow, TrimsSegmentsAndNothingElse) {
  const std::vector<KvSlot> slots = {5, 6, no_slot, 8, 9};
  const std::span<const KvSlot> all = slots;
  const std::vector<std::int32_t> positions = {12, 10, 11, 4};
  const std::vector<KvSegment> segments = {{all, 0, 3, true, 5},
                                           {all.first(1), 0, 1, false, 3},
                                           {all, 3, 4, true, 0},
                                           {all.first(0), 3, 4, true, 7}};
  std::vector<KvSegment> trimmed;
  const auto first = [&](std::int32_t window) {
    trim_to_window(segments, positions, window, trimmed);
    EXPECT_EQ(trimmed.size(), segments.size());
    EXPECT_EQ(trimmed[1].slots.size(), 1u);  // one token: the plan's masks hide it
    EXPECT_EQ(trimmed[0].first_position + std::ssize(trimmed[0].slots), 10);
    EXPECT_EQ(trimmed[0].slots.data() + trimmed[0].slots.size(), all.data() + all.size());
    return trimmed[0].slots.size();
  };
  EXPECT_EQ(first(0), 5u);
  EXPECT_EQ(first(6), 5u);  // the nearest row, at 10, sees 5 and later ones
  EXPECT_EQ(first(5), 4u);
  EXPECT_EQ(first(2), 1u);
  EXPECT_EQ(trimmed[2].slots.size(), 2u);
  EXPECT_EQ(first(1), 0u);
}

TEST(AttentionWindow, ADevicePlansForEveryWindowOfItsLimits) {
  const Problem problem({.texts = 2, .prefix = 90, .rows = 10, .window = 12}, 14);
  CpuOptions options;
  options.threads = 2;
  const auto device = make_cpu_device(options);
  PassLimits limits{problem.rows,
                    problem.rows,
                    300,
                    {problem.heads, problem.layout.kv_heads, problem.layout.head_dim}};
  limits.windows = {0, 12};
  const auto pass = device->make_pass(limits);
  const std::vector<std::int32_t> zeros(static_cast<std::size_t>(problem.rows), 0);
  pass->begin({zeros, problem.positions, zeros, problem.segments, {}});
  const auto run = [&](const AttentionRule& rule) {
    std::vector<float> out(static_cast<std::size_t>(problem.rows * problem.heads * 64), NAN);
    pass->run({}, [&] {
      device->tree_attention(*pass, problem.q.data(), problem.q_stride, problem.heads, rule,
                             problem.layout, problem.keys.data(), problem.values.data(),
                             problem.layer, out.data());
    });
    return out;
  };
  EXPECT_EQ(run(problem.rule), problem.run());
  const AttentionRule whole{problem.rule.scale};
  EXPECT_EQ(run(whole), problem.run(whole, problem.positions));
  EXPECT_THROW(run({1.0f, 0.0f, 13}), Error);
}

// The checks above must see these faults.

TEST(AttentionWindowFaults, WindowOffByOne) {
  for (const std::int32_t window : {2, 9, 33}) {
    const Problem problem({.prefix = 30, .rows = 20, .window = window}, 21);
    const auto expected = problem.reference();
    for (const std::int32_t by : {-1, 1}) {
      AttentionRule rule = problem.rule;
      rule.window += by;
      EXPECT_GT(testing::worst_error(problem.run(rule, problem.positions), expected), 10.0)
          << window << by;
    }
  }
}

TEST(AttentionWindowFaults, WindowByRowInsteadOfPosition) {
  const Problem problem({.prefix = 30, .rows = 20, .window = 9}, 22);
  std::vector<std::int32_t> by_row(static_cast<std::size_t>(problem.rows));
  std::iota(by_row.begin(), by_row.end(), 30);
  EXPECT_GT(testing::worst_error(problem.run(problem.rule, by_row), problem.reference()), 10.0);
}

TEST(AttentionWindowFaults, KeysPlacedByRowInsteadOfPosition) {
  Problem problem({.prefix = 30, .rows = 20, .window = 3}, 23);
  const auto expected = problem.reference();
  for (KvSegment& segment : problem.segments) {
    if (!segment.former) segment.first_position = 30 + segment.q_begin;
  }
  EXPECT_GT(testing::worst_error(problem.run(), expected), 10.0);
}

TEST(AttentionWindowFaults, TrimmedByTheFirstRowAlone) {
  // The first row of a grown tree's pass may be its deepest.
  Problem problem({.prefix = 60, .rows = 60, .reach = 30, .grown = true, .window = 10}, 27);
  const std::int32_t nearest =
      *std::min_element(problem.positions.begin(), problem.positions.end());
  ASSERT_GT(problem.positions.front(), nearest);
  const auto expected = problem.reference();
  KvSegment& prefix = problem.segments.front();
  const auto wrong = static_cast<std::size_t>(problem.positions.front() - problem.rule.window + 1);
  prefix.slots = prefix.slots.subspan(std::min(wrong, prefix.slots.size()));
  prefix.first_position = static_cast<std::int32_t>(wrong);
  EXPECT_GT(testing::worst_error(problem.run(), expected), 10.0);
}

TEST(AttentionWindowFaults, SoftCapBeforeTheScale) {
  const Problem problem({.rows = 20, .window = 0, .soft_cap = 2.0f}, 25);
  EXPECT_GT(
      testing::worst_error(problem.run(), problem.reference(testing::ScoreOrder::cap_then_scale)),
      10.0);
}

TEST(AttentionWindowFaults, SoftCapLeftOut) {
  const Problem problem({.rows = 20, .window = 0, .soft_cap = 50.0f}, 26);
  AttentionRule rule = problem.rule;
  rule.soft_cap = 0.0f;
  EXPECT_GT(testing::worst_error(problem.run(rule, problem.positions), problem.reference()), 10.0);
}

}  // namespace
}  // namespace coppice::attention_window_test
