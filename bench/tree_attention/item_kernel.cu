#include <algorithm>

#include "item_kernel.h"
#include "item_tiles.cuh"
#include "kernels/cuda/error.h"

namespace coppice::bench {
namespace {

using cuda::check;

constexpr int narrow_warps = narrow_item_rows / 16;
constexpr int wide_warps = wide_item_rows / 16;
constexpr int join_threads = 128;
constexpr std::int32_t most_join_blocks = 4096;

/// One (query, head) at a time, as the library joins, over a list of partial results.
__global__ void __launch_bounds__(join_threads) join_items(ItemArguments arguments) {
  constexpr int columns = head_dim / 4;
  constexpr int groups = join_threads / columns;
  constexpr int loads_in_flight = 4;
  __shared__ float maxima[join_threads / 32];
  __shared__ float weights[groups];
  __shared__ float4 sums[groups][columns];

  const ItemView& view = arguments.view;
  const std::int32_t heads = view.group * view.kv_heads;
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / columns;
  const int column = thread % columns;
  for (auto pair = static_cast<std::int32_t>(blockIdx.x); pair < view.rows * heads;
       pair += static_cast<std::int32_t>(gridDim.x)) {
    const std::int32_t query = pair / heads;
    const std::int32_t head = pair % heads;
    const std::int32_t begin = view.partials_begin[query];
    const std::int32_t end = view.partials_begin[query + 1];
    const auto partial = [&](std::int32_t at) {
      return std::int64_t{view.partials[at]} * heads + head;
    };

    float maximum = -INFINITY;
    for (std::int32_t at = begin + thread; at < end; at += join_threads) {
      maximum = fmaxf(maximum, view.partial_lse[partial(at)]);
    }
    for (int step = 16; step > 0; step /= 2) {
      maximum = fmaxf(maximum, __shfl_xor_sync(flatten::all_lanes, maximum, step));
    }
    if (thread % 32 == 0) maxima[thread / 32] = maximum;
    __syncthreads();
    for (const float other : maxima) maximum = fmaxf(maximum, other);
    if (maximum == -INFINITY) maximum = 0.0f;

    float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
    float weight_sum = 0.0f;
    for (std::int32_t first = begin + group; first < end; first += groups * loads_in_flight) {
      float weight[loads_in_flight];
      float4 part[loads_in_flight];
#pragma unroll
      for (int i = 0; i < loads_in_flight; ++i) {
        const std::int32_t at = first + i * groups;
        weight[i] =
            at < end ? flatten::power_of_two(view.partial_lse[partial(at)] - maximum) : 0.0f;
        part[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
        // Where the query sees nothing of the item, nothing was written.
        if (weight[i] != 0.0f) {
          part[i] = *reinterpret_cast<const float4*>(view.partial_out + partial(at) * head_dim +
                                                     4 * column);
        }
      }
#pragma unroll
      for (int i = 0; i < loads_in_flight; ++i) {
        weight_sum += weight[i];
        sum.x += weight[i] * part[i].x;
        sum.y += weight[i] * part[i].y;
        sum.z += weight[i] * part[i].z;
        sum.w += weight[i] * part[i].w;
      }
    }
    sums[group][column] = sum;
    if (column == 0) weights[group] = weight_sum;
    __syncthreads();
    if (group == 0) {
      for (int other = 1; other < groups; ++other) {
        const float4 part = sums[other][column];
        sum.x += part.x;
        sum.y += part.y;
        sum.z += part.z;
        sum.w += part.w;
        weight_sum += weights[other];
      }
      const float inverse = weight_sum == 0.0f ? 0.0f : 1.0f / weight_sum;
      *reinterpret_cast<uint2*>(arguments.out + std::int64_t{pair} * head_dim + 4 * column) =
          uint2{flatten::pack(sum.x * inverse, sum.y * inverse),
                flatten::pack(sum.z * inverse, sum.w * inverse)};
    }
  }
}

template <int warps>
constexpr int shared_bytes() {
  return static_cast<int>(sizeof(ItemTiles<flatten::Variant<head_dim, warps>>));
}

template <int warps>
void prepare() {
  static_assert(shared_bytes<warps>() <= 99 * 1024);
  check(cudaFuncSetAttribute(run_items<warps>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                             shared_bytes<warps>()),
        "shared memory of item attention");
  check(cudaFuncSetAttribute(run_items<warps>, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "shared memory carveout of item attention");
}

template <int warps>
void launch(const ItemArguments& arguments, cudaStream_t stream) {
  run_items<warps><<<static_cast<unsigned>(arguments.view.item_count), 32 * warps,
                     shared_bytes<warps>(), stream>>>(arguments);
  cuda::check_launch("item attention");
}

}  // namespace

void prepare_item_attention() {
  prepare<narrow_warps>();
  prepare<wide_warps>();
}

void item_attention(const ItemView& view, const ItemOperands& operands, cudaStream_t stream) {
  constexpr double log2_e = 1.4426950408889634;
  ItemArguments arguments{};
  arguments.view = view;
  arguments.q = operands.q;
  arguments.q_stride = operands.q_stride;
  arguments.keys = static_cast<const __nv_bfloat16*>(operands.keys);
  arguments.values = static_cast<const __nv_bfloat16*>(operands.values);
  arguments.out = static_cast<__nv_bfloat16*>(operands.out);
  arguments.page_size = operands.page_size;
  arguments.score_scale = static_cast<float>(log2_e * static_cast<double>(operands.scale));
  if (view.tile_rows == narrow_item_rows) {
    launch<narrow_warps>(arguments, stream);
  } else {
    launch<wide_warps>(arguments, stream);
  }
  if (view.direct) return;
  const std::int32_t blocks = std::min(view.rows * view.group * view.kv_heads, most_join_blocks);
  join_items<<<static_cast<unsigned>(blocks), join_threads, 0, stream>>>(arguments);
  cuda::check_launch("join of items");
}

}  // namespace coppice::bench
