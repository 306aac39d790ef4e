// Attention on the GPU by windows and with soft caps, and of heads of all sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "cuda/attention_problem.h"

namespace coppice::cuda {
namespace {

using testing::AttentionCase;
using testing::AttentionOutputs;
using testing::AttentionProblem;
using testing::DeviceAttention;
using testing::worst_error;

class CudaAttentionWindow : public testing::KernelTest {
 protected:
  /// The portable kernel, and the variants of the one that takes ranges where the device has it.
  static std::vector<ResidentBlocks> window_or_cap_kernels(std::int32_t head_dim) {
    const ResidentBlocks blocks = prepare_attention(head_dim);
    std::vector<ResidentBlocks> all = {items_of(blocks)};
    for (const std::int32_t rows : {range_half_tile, range_wide_tile}) {
      if (blocks.ranges > 0) all.push_back(ranges_of(blocks, rows));
    }
    return all;
  }
  static ResidentBlocks items_of(ResidentBlocks blocks) {
    blocks.ranges = 0;
    return blocks;
  }
  static ResidentBlocks ranges_of(ResidentBlocks blocks, std::int32_t rows) {
    blocks.range_tiles = {rows, range_half_tokens};
    return blocks;
  }
  double error(const AttentionCase& c, const ResidentBlocks& blocks, std::uint32_t seed) {
    const AttentionProblem problem(c, seed);
    const AttentionOutputs out = DeviceAttention(problem, blocks).run(stream_);
    EXPECT_EQ(out.launch.takes_ranges(), blocks.ranges > 0);
    return worst_error(problem, out);
  }
  static std::string told(const AttentionCase& c, const ResidentBlocks& blocks) {
    return cat(c.kv_heads, " x ", c.group, " heads of ", c.head_dim, ", prefix ", c.prefix, ", ",
               c.rows, " rows of ", c.texts, " texts, reach ", c.reach, ", window ", c.window,
               ", cap ", c.soft_cap, c.pages_in_order ? ", whole pages" : "",
               ", row tiles of ranges ", blocks.range_tiles.rows);
  }
};

class CudaAttentionWindowShapes : public CudaAttentionWindow,
                                  public ::testing::WithParamInterface<int> {};

TEST_P(CudaAttentionWindowShapes, RandomPasses) {
  std::mt19937 random(static_cast<std::uint32_t>(GetParam()));
  const auto pick = [&](std::initializer_list<std::int32_t> of) {
    return of.begin()[random() % of.size()];
  };
  const std::vector<ResidentBlocks> kernels = window_or_cap_kernels(GetParam());
  for (std::uint32_t round = 0; round < 60; ++round) {
    const ResidentBlocks& blocks = kernels[round % kernels.size()];
    AttentionCase c{.head_dim = GetParam(),
                    .kv_heads = pick({1, 2, 3}),
                    .group = pick({1, 2, 4, 5, 8}),
                    .prefix = pick({0, 1, 63, 130, 1000, 5000}),
                    .rows = pick({1, 2, 9, 17, 64, 130, 300}),
                    .reach = pick({1, 5, 1000}),
                    .pages_in_order = random() % 2 == 0,
                    .window = pick({0, 1, 2, 7, 31, 64, 65, 200, 1024, 1 << 30}),
                    .soft_cap = random() % 2 == 0 ? 0.0f : 3.0f};
    if (random() % 3 == 0) c.texts = std::min(pick({2, 7, 20}), c.rows);
    c.by_boxes = random() % 2 == 0;
    ASSERT_LE(error(c, blocks, round), 1.0) << told(c, blocks) << ", round " << round;
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaAttentionWindowShapes,
                         ::testing::Values(16, 64, 80, 96, 128, 192, 256));

// Windows that end in the tree, between tree and prefix, and in the prefix.
TEST_F(CudaAttentionWindow, EveryWidth) {
  const std::vector<ResidentBlocks> kernels = window_or_cap_kernels(128);
  for (std::int32_t window = 1; window <= 100; ++window) {
    const ResidentBlocks& blocks = kernels[static_cast<std::size_t>(window) % kernels.size()];
    const AttentionCase c{.prefix = 50, .rows = 30, .reach = 2, .window = window};
    ASSERT_LE(error(c, blocks, 4), 1.0) << told(c, blocks);
  }
}

TEST_F(CudaAttentionWindow, PrefillChains) {
  for (const ResidentBlocks& blocks : window_or_cap_kernels(128)) {
    for (const std::int32_t window : {1, 10, 100, 512, 3000}) {
      for (const bool pages_in_order : {false, true}) {
        const AttentionCase c{.prefix = 3000,
                              .rows = 512,
                              .reach = 1,
                              .pages_in_order = pages_in_order,
                              .window = window};
        ASSERT_LE(error(c, blocks, 5), 1.0) << told(c, blocks);
      }
    }
  }
}

// Scores far below the cap, near it and above: kernels compute these in several ways.
TEST_F(CudaAttentionWindow, SoftCaps) {
  for (const std::int32_t head_dim : {128, 256}) {
    for (const ResidentBlocks& blocks : window_or_cap_kernels(head_dim)) {
      for (const float cap : {0.05f, 1.0f, 8.0f, 15.0f, 50.0f}) {
        for (const std::int32_t rows : {1, 70}) {
          const AttentionCase c{.head_dim = head_dim, .prefix = 300, .rows = rows, .soft_cap = cap};
          AttentionProblem problem(c, 6);
          for (float& value : problem.q) value *= rows == 1 ? 4.0f : 1.0f;
          EXPECT_LE(worst_error(problem, DeviceAttention(problem, blocks).run(stream_)), 1.0)
              << told(c, blocks);
        }
      }
    }
  }
}

TEST_F(CudaAttentionWindow, OfOneTokenGivesItsOwnValue) {
  for (const ResidentBlocks& blocks : window_or_cap_kernels(256)) {
    const AttentionCase c{.head_dim = 256, .kv_heads = 2, .prefix = 300, .window = 1};
    const AttentionProblem problem(c, 7);
    const auto out = DeviceAttention(problem, blocks).run(stream_);
    for (std::int32_t head = 0; head < 8; ++head) {
      const std::size_t own = problem.pool_row(problem.tail.back().slot, head / 4);
      for (std::size_t i = 0; i < 256; ++i) {
        EXPECT_EQ(out[static_cast<std::size_t>(head) * 256 + i], problem.values[own + i]);
      }
    }
  }
}

TEST_F(CudaAttentionWindow, WiderThanTheTextIsNone) {
  for (const ResidentBlocks& blocks : window_or_cap_kernels(128)) {
    for (const std::int32_t rows : {1, 40, 200}) {
      const AttentionCase c{.prefix = 1000, .rows = rows};
      const AttentionProblem problem(c, 8);
      const auto expected = DeviceAttention(problem, blocks).run(stream_);
      DeviceAttention wide(problem, blocks);
      wide.set_rule({problem.rule.scale, 0.0f, c.prefix + rows});
      EXPECT_EQ(expected, wide.run(stream_)) << told(c, blocks);
    }
  }
}

TEST_F(CudaAttentionWindow, SameBitsAtAnyGridAndTime) {
  for (const ResidentBlocks& blocks : window_or_cap_kernels(128)) {
    const AttentionCase c{
        .kv_heads = 2, .prefix = 3000, .rows = 200, .window = 700, .soft_cap = 10.0f};
    const AttentionProblem problem(c, 9);
    DeviceAttention device(problem, blocks);
    const auto first = device.run(stream_);
    for (int repeat = 0; repeat < 10; ++repeat) ASSERT_EQ(first, device.run(stream_));
    if (blocks.ranges > 0) continue;
    ResidentBlocks grid = blocks;
    grid.narrow = grid.wide = 5;
    EXPECT_EQ(first, device.run(grid, stream_));
  }
}

// The checks above must see these faults.
TEST_F(CudaAttentionWindow, MistakesAreNoticed) {
  for (const ResidentBlocks& blocks : window_or_cap_kernels(128)) {
    const AttentionCase c{.kv_heads = 2,
                          .prefix = 40,
                          .rows = 50,
                          .reach = 6,
                          .holes = 0,
                          .window = 12,
                          .soft_cap = 3.0f};
    const AttentionProblem problem(c, 11);
    const auto with = [&](auto change) {
      AttentionProblem other = problem;
      DeviceAttention device(problem, blocks);
      AttentionRule rule = problem.rule;
      change(other, rule);
      device.set_rule(rule);
      device.set_positions(other.positions);
      device.set_tail(other.tail);
      return worst_error(problem, device.run(stream_));
    };
    ASSERT_LE(with([](auto&, auto&) {}), 1.0);
    EXPECT_GT(with([](auto&, auto& rule) { --rule.window; }), 2.0) << "one token too few";
    EXPECT_GT(with([](auto&, auto& rule) { ++rule.window; }), 2.0) << "one token too many";
    EXPECT_GT(with([](auto& other, auto&) {
                std::iota(other.positions.begin(), other.positions.end(), 40);
              }),
              2.0)
        << "rows placed by index";
    EXPECT_GT(with([](auto& other, auto&) {
                for (VisibleKv& token : other.tail) token.position = 40;
              }),
              2.0)
        << "keys of one depth";
    EXPECT_GT(with([](auto&, auto& rule) { rule.soft_cap = 0.0f; }), 2.0) << "no cap";
    // scale cap(q k) is what a cap of scale times that gives.
    EXPECT_GT(with([](auto&, auto& rule) { rule.soft_cap *= rule.scale; }), 2.0)
        << "cap before scale";
  }
}

// And these of a plan: what it says of a row tile, kernels do not ask again.
TEST_F(CudaAttentionWindow, MistakesOfAPlanAreNoticed) {
  const ResidentBlocks blocks = prepare_attention(128);
  if (blocks.ranges == 0) GTEST_SKIP() << "no kernel that takes ranges";
  // Every row tile's first row sees from the beginning of a box on.
  const AttentionCase c{.prefix = 600, .rows = 96, .reach = 1, .holes = 0, .window = 201};
  const AttentionProblem problem(c, 12);
  const auto with = [&](auto change) {
    DeviceAttention device(problem, ranges_of(blocks, range_half_tile));
    AttentionProblem::Plan plan = problem.plan(ranges_of(blocks, range_half_tile));
    change(plan);
    device.set_plan(plan);
    return worst_error(problem, device.run(stream_));
  };
  ASSERT_LE(with([](auto&) {}), 1.0);
  const auto with_tiles = [&](auto change) {
    return with([&](auto& plan) {
      for (RowTile& tile : plan.row_tiles) change(tile);
    });
  };
  EXPECT_GT(with_tiles([](RowTile& tile) { tile.prefix_begin += range_box; }), 2.0)
      << "the prefix from too late on";
  EXPECT_GT(with_tiles([](RowTile& tile) { tile.positions.begin += 8; }), 2.0)
      << "the first rows are forgotten";
  EXPECT_GT(with_tiles([](RowTile& tile) { tile.positions.end = tile.positions.begin + 1; }), 2.0)
      << "the last rows are forgotten";
  EXPECT_GT(with([](auto& plan) { plan.scalars.prefix_position -= 8; }), 2.0)
      << "the prefix lies farther away";
  EXPECT_GT(with([](auto& plan) { plan.scalars.prefix_begin += 1; }), 2.0) << "slots of neighbours";
}

}  // namespace
}  // namespace coppice::cuda
