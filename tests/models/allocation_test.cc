// A pass allocates nothing once its like has been run.
#include <gtest/gtest.h>

#include <numeric>
#include <random>
#include <vector>

#include "base/token_tree.h"
#include "base/tree_order.h"
#include "kernels/cuda/attention/range_plan.h"
#include "kernels/device.h"
#include "models/model.h"
#include "reference/allocation_count.h"
#include "reference/segments.h"
#include "reference/tiny_model.h"

namespace coppice {
namespace {

using testing::allocations;

/// The tail of a random tree of `rows` rows, in depth-first order, its slots from `first_slot` on.
std::vector<VisibleKv> random_tail(std::int32_t rows, KvSlot first_slot, std::mt19937& random) {
  TokenTree tree;
  tree.reset(0);
  std::vector<std::int32_t> children(static_cast<std::size_t>(rows), 0);
  for (std::int32_t node = 1; node < rows; ++node) {
    const std::size_t parent = random() % static_cast<std::size_t>(node);
    tree.add(static_cast<std::int32_t>(parent), node, children[parent]++, 0.5f, 0.5);
  }
  TreeOrder order;
  order.assign(tree);
  std::vector<VisibleKv> tail;
  for (std::int32_t row = 0; row < rows; ++row) {
    tail.push_back(
        {first_slot + row, row, row + order.subtree_rows[static_cast<std::size_t>(row)]});
  }
  return tail;
}

TEST(Allocation, NoneInAPassOnceItsLikeHasBeenRun) {
  const testing::TemporaryFolder folder;
  testing::write_tiny_model(folder.path(), {});
  CpuOptions cpu;
  cpu.threads = 2;
  cpu.compute = DType::f32;
  const auto device = make_cpu_device(cpu);
  const auto model = Model::load(folder.path(), *device);
  constexpr std::int32_t prefix = 40, most_rows = 64;
  KvPool pool(*device, model->kv_layout(prefix + most_rows, 16));
  std::vector<KvSlot> slots(prefix + most_rows);
  ASSERT_TRUE(pool.take(slots));
  std::mt19937 random(5);
  // oneDNN, which multiplies larger passes, allocates in every call.
  for (const std::int32_t rows : {1, 7, 30, most_rows}) {
    const auto count = static_cast<std::size_t>(rows);
    const std::vector<TokenId> tokens(count, 3);
    const std::vector<std::int32_t> positions(count, prefix);
    std::vector<std::int32_t> logit_rows(count);
    std::iota(logit_rows.begin(), logit_rows.end(), 0);
    const auto tail = random_tail(rows, slots[prefix], random);
    const std::span<const KvSlot> all = slots;
    std::vector<KvSegment> segments = {{all.first(prefix), 0, rows, true, 0}};
    for (const KvSegment& segment : testing::segments_of(tail)) segments.push_back(segment);
    std::int64_t before = 0;
    for (int pass = 0; pass < 3; ++pass) {
      before = allocations;
      for (const std::size_t logits : {count, std::size_t{1}}) {
        model->forward({tokens, positions, all.subspan(prefix, count), segments,
                        std::span(logit_rows).first(logits)},
                       pool);
      }
    }
    EXPECT_EQ(allocations, before) << rows << " rows";
  }
}

TEST(Allocation, NoneInRangePlanningForSmallerPasses) {
  RangePlanner planner;
  std::mt19937 random(6);
  constexpr std::int32_t group = 4, kv_heads = 8, blocks = 132, most_rows = 300;
  std::vector<RowTile> tiles(static_cast<std::size_t>(most_range_row_tiles(most_rows, group)));
  std::vector<BlockRange> ranges(blocks);
  for (const std::int32_t rows : {most_rows, 200, 64, 1}) {
    const auto tail = random_tail(rows, 0, random);
    const auto segments = testing::segments_of(tail);
    const std::int64_t before = allocations;
    planner.plan({rows, rows, group, kv_heads, 4096, segments}, blocks, {}, tiles)
        .write_ranges(tiles, ranges);
    const std::int64_t made = allocations - before;
    EXPECT_EQ(made > 0, rows == most_rows) << made << " for " << rows << " rows";
  }
}

}  // namespace
}  // namespace coppice
