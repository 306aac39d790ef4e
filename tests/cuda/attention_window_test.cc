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
  /// The portable kernel, and those of the device at hand where it has any.
  static std::vector<ResidentBlocks> ruled_kernels(std::int32_t head_dim) {
    const ResidentBlocks blocks = prepare_attention(head_dim);
    ResidentBlocks portable = blocks;
    portable.ranges = 0;
    std::vector<ResidentBlocks> all = {portable};
    if (blocks.ranges > 0) all.push_back(blocks);
    return all;
  }
  double error(const AttentionCase& c, const ResidentBlocks& blocks, std::uint32_t seed) {
    const AttentionProblem problem(c, seed);
    return worst_error(problem, DeviceAttention(problem, blocks).run(stream_));
  }
  static std::string told(const AttentionCase& c, const ResidentBlocks& blocks) {
    return cat(c.kv_heads, " x ", c.group, " heads of ", c.head_dim, ", prefix ", c.prefix, ", ",
               c.rows, " rows of ", c.texts, " texts, reach ", c.reach, ", window ", c.window,
               ", cap ", c.soft_cap, blocks.ranges > 0 ? ", ranges" : ", items");
  }
};

class CudaAttentionWindowShapes : public CudaAttentionWindow,
                                  public ::testing::WithParamInterface<int> {};

TEST_P(CudaAttentionWindowShapes, RandomPasses) {
  std::mt19937 random(static_cast<std::uint32_t>(GetParam()));
  const auto pick = [&](std::initializer_list<std::int32_t> of) {
    return of.begin()[random() % of.size()];
  };
  for (const ResidentBlocks& blocks : ruled_kernels(GetParam())) {
    for (std::uint32_t round = 0; round < 120; ++round) {
      AttentionCase c;
      c.head_dim = GetParam();
      c.kv_heads = pick({1, 2, 3});
      c.group = pick({1, 2, 4, 5, 8});
      c.prefix = pick({0, 1, 63, 130, 1000, 5000});
      c.rows = pick({1, 2, 9, 17, 64, 130, 300});
      c.reach = pick({1, 5, 1000});
      c.texts = random() % 3 == 0 ? std::min(pick({2, 7, 20}), c.rows) : 1;
      c.window = pick({0, 1, 2, 7, 31, 64, 65, 200, 1024, 1 << 30});
      c.soft_cap = random() % 2 == 0 ? 0.0f : 3.0f;
      ASSERT_LE(error(c, blocks, round), 1.0) << told(c, blocks) << ", round " << round;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, CudaAttentionWindowShapes,
                         ::testing::Values(16, 64, 80, 96, 128, 192, 256));

// Windows that end in the tree, between tree and prefix, and in the prefix.
TEST_F(CudaAttentionWindow, EveryWidth) {
  for (const ResidentBlocks& blocks : ruled_kernels(128)) {
    for (std::int32_t window = 1; window <= 150; ++window) {
      AttentionCase c;
      c.prefix = 70;
      c.rows = 60;
      c.reach = 2;
      c.window = window;
      ASSERT_LE(error(c, blocks, 4), 1.0) << told(c, blocks);
    }
  }
}

TEST_F(CudaAttentionWindow, PrefillChains) {
  for (const ResidentBlocks& blocks : ruled_kernels(128)) {
    for (const std::int32_t window : {1, 10, 100, 512, 3000}) {
      AttentionCase c;
      c.prefix = 3000;
      c.rows = 512;
      c.reach = 1;
      c.window = window;
      ASSERT_LE(error(c, blocks, 5), 1.0) << told(c, blocks);
    }
  }
}

TEST_F(CudaAttentionWindow, SoftCaps) {
  for (const std::int32_t head_dim : {128, 256}) {
    for (const ResidentBlocks& blocks : ruled_kernels(head_dim)) {
      for (const float cap : {0.05f, 1.0f, 30.0f, 50.0f}) {
        for (const std::int32_t rows : {1, 20, 130}) {
          AttentionCase c;
          c.head_dim = head_dim;
          c.prefix = 700;
          c.rows = rows;
          c.soft_cap = cap;
          AttentionProblem problem(c, 6);
          for (float& value : problem.q) value *= rows == 20 ? 8.0f : 1.0f;
          EXPECT_LE(worst_error(problem, DeviceAttention(problem, blocks).run(stream_)), 1.0)
              << told(c, blocks);
        }
      }
    }
  }
}

TEST_F(CudaAttentionWindow, OfOneTokenGivesItsOwnValue) {
  for (const ResidentBlocks& blocks : ruled_kernels(256)) {
    AttentionCase c;
    c.head_dim = 256;
    c.kv_heads = 2;
    c.prefix = 300;
    c.window = 1;
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
  ResidentBlocks items = prepare_attention(128);
  items.ranges = 0;
  for (const std::int32_t rows : {1, 40, 200}) {
    AttentionCase c;
    c.prefix = 1000;
    c.rows = rows;
    const AttentionProblem problem(c, 8);
    const auto expected = DeviceAttention(problem, items).run(stream_);
    DeviceAttention wide(problem, items);
    wide.set_rule({problem.rule.scale, 0.0f, c.prefix + rows});
    EXPECT_EQ(expected, wide.run(stream_));
  }
}

TEST_F(CudaAttentionWindow, SameBitsAtAnyGridAndTime) {
  for (const ResidentBlocks& blocks : ruled_kernels(128)) {
    AttentionCase c;
    c.kv_heads = 2;
    c.prefix = 3000;
    c.rows = 200;
    c.window = 700;
    c.soft_cap = 10.0f;
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
  for (const ResidentBlocks& blocks : ruled_kernels(128)) {
    AttentionCase c;
    c.kv_heads = 2;
    c.prefix = 40;
    c.rows = 50;
    c.reach = 6;
    c.holes = 0;
    c.window = 12;
    c.soft_cap = 3.0f;
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

}  // namespace
}  // namespace coppice::cuda
