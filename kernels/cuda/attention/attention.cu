#include <algorithm>

#include "base/error.h"
#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/attention_join.cuh"
#include "kernels/cuda/attention/attention_kernel.cuh"
#include "kernels/cuda/attention/hopper_attention.h"
#include "kernels/cuda/early_launch.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda {
namespace {

constexpr int narrow_warps = narrow_row_tile / 16;
constexpr int wide_warps = wide_row_tile / 16;

template <int head_dim_, bool window_or_cap_>
struct Head {
  static constexpr int head_dim = head_dim_;
  static constexpr bool window_or_cap = window_or_cap_;
};

/// Calls visit(Head<head_dim, window_or_cap>), where heads of the usual sizes alone have kernels
/// that have no window and soft cap: others serve layers without a rule as well.
template <typename Visit>
void with_head(std::int32_t head_dim, bool window_or_cap, Visit visit) {
  switch (head_dim) {
    case 8:
      return visit(Head<8, true>());
    case 16:
      return visit(Head<16, true>());
    case 32:
      return visit(Head<32, true>());
    case 64:
      return window_or_cap ? visit(Head<64, true>()) : visit(Head<64, false>());
    case 80:
      return visit(Head<80, true>());
    case 96:
      return visit(Head<96, true>());
    case 128:
      return window_or_cap ? visit(Head<128, true>()) : visit(Head<128, false>());
    case 192:
      return visit(Head<192, true>());
    case 256:
      return visit(Head<256, true>());
    default:
      throw_usage(
          cat("the CUDA backend has attention for heads of 8, 16, 32, 64, 80, 96, 128, 192 and 256 "
              "elements, this model's have ",
              head_dim, "; use --device cpu"));
  }
}

template <typename V>
constexpr int shared_bytes() {
  return static_cast<int>(sizeof(flatten::BlockMemory<V>));
}

/// Sets the kernel's attributes and returns how many of its blocks the device holds.
template <typename V>
std::int32_t prepare() {
  constexpr auto kernel = flatten::attend<V>;
  flatten::allow_shared_memory<shared_bytes<V>()>(kernel);
  int per_multiprocessor = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, V::threads,
                                                      shared_bytes<V>()),
        "occupancy of attention");
  int device = 0;
  int multiprocessors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "multiprocessor count");
  return std::max(1, per_multiprocessor * multiprocessors);
}

template <typename V>
void launch_items(const flatten::Arguments& arguments, std::int32_t blocks, cudaStream_t stream) {
  launch_early(flatten::attend<V>, dim3(static_cast<unsigned>(blocks)), V::threads,
               shared_bytes<V>(), stream, arguments);
  check_launch("tree attention");
}

}  // namespace

ResidentBlocks prepare_attention(std::int32_t head_dim) {
  ResidentBlocks blocks;
  for (const bool window_or_cap : {true, false}) {
    with_head(head_dim, window_or_cap, [&]<typename H>(H) {
      blocks.narrow = prepare<flatten::Variant<H::head_dim, narrow_warps, H::window_or_cap>>();
      blocks.wide = prepare<flatten::Variant<H::head_dim, wide_warps, H::window_or_cap>>();
    });
  }
  blocks.ranges = prepare_hopper_attention(head_dim);
  return blocks;
}

std::size_t row_tile_capacity(const AttentionShape& shape, std::int32_t padded_rows,
                              const ResidentBlocks& blocks) {
  if (blocks.ranges == 0) return 0;
  return static_cast<std::size_t>(most_range_row_tiles(padded_rows, shape.heads / shape.kv_heads));
}

AttentionLaunch plan_attention(const AttentionShape& shape, std::int32_t rows,
                               std::int32_t padded_rows, const WindowedKv& kv,
                               const ResidentBlocks& blocks, const AttentionPlan& result) {
  const std::span<const KvSegment> tail = kv.tail;
  std::int32_t tail_tokens = 0;
  for (const KvSegment& segment : tail) {
    tail_tokens += static_cast<std::int32_t>(segment.slots.size());
  }
  const AttentionKernel kernel =
      attention_kernel_for(shape, padded_rows, kv.prefix + tail_tokens, blocks);
  // Ranges begin at a place where slots can be copied at once.
  const std::int32_t before = kernel == AttentionKernel::ranges ? kv.prefix_begin % range_box : 0;
  const std::int32_t prefix = kv.prefix + before;
  const std::int32_t group = shape.heads / shape.kv_heads;
  const std::int32_t item_rows = row_tile_for(padded_rows, group);
  const std::int32_t longest =
      kernel == AttentionKernel::items && rows * group > item_rows
          ? longest_span(tail, prefix, rows, group, item_rows, result.planner.spans())
          : -1;
  const FlattenPlan plan =
      make_flatten_plan(shape, rows, padded_rows, prefix, tail_tokens, blocks, longest);
  PassScalars& scalars = result.scalars;
  scalars.rows = rows;
  scalars.prefix = prefix;
  scalars.prefix_begin = kv.prefix_begin - before;
  scalars.prefix_position = kv.prefix_position - before;
  scalars.tail = tail_tokens;
  scalars.chunk_tokens = plan.chunk_tokens;
  scalars.chunks = plan.chunks;
  if (kernel == AttentionKernel::items) {
    return {plan.chunks == 1 ? AttentionKernel::whole_items : kernel, {}};
  }
  const bool window_or_cap = kv.window_or_cap || !has_plain_ranges(shape.head_dim);
  const RangeShares& shares =
      result.planner.plan({rows, padded_rows, plan.group, shape.kv_heads, prefix, tail,
                           window_or_cap, kv.window, scalars.prefix_position, kv.positions,
                           kv.near_tail, kv.by_row, blocks.range_gang, blocks.range_gangs},
                          blocks.ranges, blocks.range_tiles, result.row_tiles);
  scalars.cut = shares.plan;
  shares.write_ranges(result.row_tiles, result.ranges);
  return {kernel, shares.plan.tiles, shares.leaves_out};
}

void tree_attention(AttentionLaunch launch, const PassView& pass, std::int32_t padded_rows,
                    const void* q, std::int64_t q_stride, const AttentionShape& shape,
                    const AttentionRule& rule, const KvLayout& layout, const void* keys,
                    const void* values, std::int32_t layer, void* out,
                    const AttentionScratch& scratch, const ResidentBlocks& blocks,
                    cudaStream_t stream) {
  const bool window_or_cap = has_rule(rule);
  // Every plan is one of items, too.
  if (launch.takes_ranges() && range_tiles_exist(launch.tiles, window_or_cap)) {
    return hopper_attention(launch, pass, q, q_stride, shape, rule, layout, keys, values, layer,
                            out, scratch, blocks.ranges, stream);
  }
  const flatten::Arguments arguments{
      make_operands(q, q_stride, shape, rule, layout, keys, values, layer, out, scratch), pass};
  const std::int32_t row_tile = row_tile_for(padded_rows, arguments.group);
  const std::int32_t join_blocks = std::min(padded_rows * shape.heads, 4 * blocks.wide);
  with_head(shape.head_dim, window_or_cap, [&]<typename H>(H) {
    if (row_tile == narrow_row_tile) {
      launch_items<flatten::Variant<H::head_dim, narrow_warps, H::window_or_cap>>(
          arguments, blocks.narrow, stream);
    } else {
      launch_items<flatten::Variant<H::head_dim, wide_warps, H::window_or_cap>>(
          arguments, blocks.wide, stream);
    }
    if (launch.kernel == AttentionKernel::whole_items) return;
    launch_early(flatten::join_partials<H::head_dim>, dim3(static_cast<unsigned>(join_blocks)),
                 flatten::join_threads, 0, stream, arguments);
    check_launch("join of attention's partial results");
  });
}

}  // namespace coppice::cuda
