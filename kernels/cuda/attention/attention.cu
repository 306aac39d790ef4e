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

template <int value>
struct Constant {
  static constexpr int head_dim = value;
};

/// Calls visit(Constant<head_dim>).
template <typename Visit>
void with_head_dim(std::int32_t head_dim, Visit visit) {
  switch (head_dim) {
    case 8:
      return visit(Constant<8>());
    case 16:
      return visit(Constant<16>());
    case 32:
      return visit(Constant<32>());
    case 64:
      return visit(Constant<64>());
    case 80:
      return visit(Constant<80>());
    case 96:
      return visit(Constant<96>());
    case 128:
      return visit(Constant<128>());
    default:
      throw_usage(
          cat("the CUDA backend has attention for heads of 8, 16, 32, 64, 80, 96 and "
              "128 elements, "
              "this model's have ",
              head_dim, "; use --device cpu"));
  }
}

template <int head_dim, int warps>
constexpr int shared_bytes() {
  return static_cast<int>(sizeof(flatten::BlockMemory<flatten::Variant<head_dim, warps>>));
}

/// Sets the kernel's attributes and returns how many of its blocks the device holds.
template <int head_dim, int warps>
std::int32_t prepare() {
  constexpr auto kernel = flatten::attend<head_dim, warps>;
  static_assert(shared_bytes<head_dim, warps>() <= 99 * 1024);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             shared_bytes<head_dim, warps>()),
        "shared memory of attention");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "shared memory carveout of attention");
  int per_multiprocessor = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&per_multiprocessor, kernel, 32 * warps,
                                                      shared_bytes<head_dim, warps>()),
        "occupancy of attention");
  int device = 0;
  int multiprocessors = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device),
        "multiprocessor count");
  return std::max(1, per_multiprocessor * multiprocessors);
}

template <int head_dim, int warps>
void launch_items(const flatten::Arguments& arguments, std::int32_t blocks, cudaStream_t stream) {
  launch_early(flatten::attend<head_dim, warps>, dim3(static_cast<unsigned>(blocks)), 32 * warps,
               shared_bytes<head_dim, warps>(), stream, arguments);
  check_launch("tree attention");
}

}  // namespace

ResidentBlocks prepare_attention(std::int32_t head_dim) {
  ResidentBlocks blocks;
  with_head_dim(head_dim, [&](auto constant) {
    constexpr int dim = decltype(constant)::head_dim;
    blocks.narrow = prepare<dim, narrow_warps>();
    blocks.wide = prepare<dim, wide_warps>();
  });
  blocks.ranges = prepare_hopper_attention(head_dim);
  return blocks;
}

std::size_t row_tile_capacity(const AttentionShape& shape, std::int32_t padded_rows,
                              const ResidentBlocks& blocks) {
  if (blocks.ranges == 0) return 0;
  return static_cast<std::size_t>(most_range_row_tiles(padded_rows, shape.heads / shape.kv_heads));
}

AttentionLaunch plan_attention(const AttentionShape& shape, std::int32_t rows,
                               std::int32_t padded_rows, std::int32_t prefix,
                               std::span<const KvSegment> tail, const ResidentBlocks& blocks,
                               const AttentionPlan& result) {
  std::int32_t tail_tokens = 0;
  for (const KvSegment& segment : tail) {
    tail_tokens += static_cast<std::int32_t>(segment.slots.size());
  }
  const AttentionKernel kernel =
      attention_kernel_for(shape, padded_rows, prefix + tail_tokens, blocks);
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
  scalars.tail = tail_tokens;
  scalars.chunk_tokens = plan.chunk_tokens;
  scalars.chunks = plan.chunks;
  if (kernel == AttentionKernel::items) {
    return {plan.chunks == 1 ? AttentionKernel::whole_items : kernel, {}};
  }
  const RangeShares& shares =
      result.planner.plan({rows, padded_rows, plan.group, shape.kv_heads, prefix, tail},
                          blocks.ranges, blocks.range_tiles, result.row_tiles);
  scalars.cut = shares.plan;
  shares.write_ranges(result.row_tiles, result.ranges);
  return {kernel, shares.plan.tiles};
}

void tree_attention(AttentionLaunch launch, const PassView& pass, std::int32_t padded_rows,
                    const float* q, std::int64_t q_stride, const AttentionShape& shape, float scale,
                    const KvLayout& layout, const void* keys, const void* values,
                    std::int32_t layer, void* out, const AttentionScratch& scratch,
                    const ResidentBlocks& blocks, cudaStream_t stream) {
  if (launch.takes_ranges()) {
    return hopper_attention(launch.tiles, pass, q, q_stride, shape, scale, layout, keys, values,
                            layer, out, scratch, blocks.ranges, stream);
  }
  const flatten::Arguments arguments{
      make_operands(q, q_stride, shape, scale, layout, keys, values, layer, out, scratch), pass};
  const std::int32_t row_tile = row_tile_for(padded_rows, arguments.group);
  const std::int32_t join_blocks = std::min(padded_rows * shape.heads, 4 * blocks.wide);
  with_head_dim(shape.head_dim, [&](auto constant) {
    constexpr int dim = decltype(constant)::head_dim;
    if (row_tile == narrow_row_tile) {
      launch_items<dim, narrow_warps>(arguments, blocks.narrow, stream);
    } else {
      launch_items<dim, wide_warps>(arguments, blocks.wide, stream);
    }
    if (launch.kernel == AttentionKernel::whole_items) return;
    launch_early(flatten::join_partials<dim>, dim3(static_cast<unsigned>(join_blocks)),
                 flatten::join_threads, 0, stream, arguments);
    check_launch("join of attention's partial results");
  });
}

}  // namespace coppice::cuda
