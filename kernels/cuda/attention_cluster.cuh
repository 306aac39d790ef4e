// DeFT-Flatten attention over few tokens in one kernel: the chunks of a KV head and row tile are
// the blocks of a cluster, which join their partial results out of one another's shared memory.
#pragma once

#include "kernels/cuda/attention_kernel.cuh"
#include "kernels/cuda/cluster.cuh"

namespace coppice::cuda::flatten {

/// A partial result in the place of the keys: [tile_rows][stride] f32, not divided by the sum of
/// its weights. With 8 floats more than a row has, eight rows lie in different banks.
template <typename V>
struct PartialTile {
  static constexpr int stride = V::head_dim + 8;
  static_assert(sizeof(float) * V::tile_rows * stride <= sizeof(SharedTiles<V>::keys));
};

/// Leaves the thread's parts of its two rows where the cluster's blocks find them.
template <typename V>
__device__ void show_rows(const WarpRows<V>& rows, SharedTiles<V>& shared) {
  const int thread = static_cast<int>(threadIdx.x);
  const int column = thread % 4 * 2;
  auto* partial = reinterpret_cast<float*>(shared.keys);
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const int row = thread / 32 * 16 + thread % 32 / 4 + 8 * half;
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(all_lanes, sum, 1);
    sum += __shfl_xor_sync(all_lanes, sum, 2);
    if (column == 0) shared.weights[row] = float2{rows.maximum[half], sum};
#pragma unroll
    for (int n = 0; n < V::head_dim / 8; ++n) {
      *reinterpret_cast<float2*>(partial + row * PartialTile<V>::stride + 8 * n + column) =
          float2{rows.out[n][2 * half], rows.out[n][2 * half + 1]};
    }
  }
}

/// Joins this block's share of the cluster's partial results, in the order of the chunks.
template <typename V>
__device__ void join_in_cluster(const Arguments& arguments, FlattenItem item,
                                const SharedTiles<V>& shared) {
  constexpr int vectors = V::head_dim / 4;
  const FlattenPlan& plan = shared.plan;
  const std::int32_t first_row = item.row_tile * V::tile_rows;
  const std::int32_t rows = min(V::tile_rows, plan.packed_rows() - first_row);
  const std::uint32_t weights_here = shared_address(shared.weights);
  const std::uint32_t partial_here = shared_address(shared.keys);
  const std::int32_t chunks = plan.chunks;
  for (std::int32_t index = item.chunk * V::threads + static_cast<std::int32_t>(threadIdx.x);
       index < rows * vectors; index += cluster_chunks * V::threads) {
    const std::int32_t row = index / vectors;
    const std::int32_t vector = index % vectors;
    float2 weights[cluster_chunks];
    float4 parts[cluster_chunks];
    float maximum = -INFINITY;
#pragma unroll
    for (int chunk = 0; chunk < cluster_chunks; ++chunk) {
      weights[chunk] = float2{-INFINITY, 0.0f};
      parts[chunk] = float4{0.0f, 0.0f, 0.0f, 0.0f};
      if (chunk >= chunks) continue;
      weights[chunk] = load_pair_in_block(
          address_in_block(weights_here + static_cast<std::uint32_t>(row) * 8, chunk));
      parts[chunk] = load_four_in_block(address_in_block(
          partial_here + static_cast<std::uint32_t>(row * PartialTile<V>::stride + 4 * vector) * 4,
          chunk));
    }
#pragma unroll
    for (const float2& weight : weights) maximum = fmaxf(maximum, weight.x);
    if (maximum == -INFINITY) maximum = 0.0f;  // a query that sees nothing: all weights 0
    float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
    float weight_sum = 0.0f;
#pragma unroll
    for (int chunk = 0; chunk < cluster_chunks; ++chunk) {
      const float weight = power_of_two(weights[chunk].x - maximum);
      weight_sum += weight * weights[chunk].y;
      sum.x += weight * parts[chunk].x;
      sum.y += weight * parts[chunk].y;
      sum.z += weight * parts[chunk].z;
      sum.w += weight * parts[chunk].w;
    }
    const float inverse = weight_sum == 0.0f ? 0.0f : 1.0f / weight_sum;
    const std::int32_t packed_row = first_row + row;
    __nv_bfloat16* out = arguments.out + (std::int64_t{plan.query_of(packed_row)} * plan.heads() +
                                          plan.head_of(item.kv_head, packed_row)) *
                                             V::head_dim;
    *reinterpret_cast<uint2*>(out + 4 * vector) =
        uint2{pack(sum.x * inverse, sum.y * inverse), pack(sum.z * inverse, sum.w * inverse)};
  }
}

/// Grid: [cluster_chunks, row tiles of the padded rows, KV heads], clusters of cluster_chunks
/// blocks. What may be read early is as for attend().
template <int head_dim, int warps>
__global__ void __launch_bounds__(Variant<head_dim, warps>::threads,
                                  Variant<head_dim, warps>::blocks_per_sm)
    attend_in_clusters(Arguments arguments) {
  let_next_kernel_begin();
  using V = Variant<head_dim, warps>;
  extern __shared__ uint4 dynamic_shared[];
  auto& shared = *reinterpret_cast<SharedTiles<V>*>(dynamic_shared);
  if (threadIdx.x == 0) {
    shared.plan =
        plan_of(*arguments.pass.scalars, arguments.kv_heads, arguments.group, V::tile_rows);
  }
  __syncthreads();
  const FlattenItem item{static_cast<std::int32_t>(blockIdx.z),
                         static_cast<std::int32_t>(blockIdx.y),
                         static_cast<std::int32_t>(blockIdx.x)};
  if (item.row_tile >= shared.plan.row_tiles()) return;  // the whole cluster does
  if (item.chunk < shared.plan.chunks) {
    WarpRows<V> rows;
    compute_item(arguments, item, shared, rows);
    __syncthreads();  // other warps may still be reading the keys
    show_rows(rows, shared);
  } else {
    wait_for_former_kernels();
  }
  arrive_at_cluster();
  wait_for_cluster();
  join_in_cluster(arguments, item, shared);
  // Shared memory stays until all have read it.
  arrive_at_cluster();
  wait_for_cluster();
}

}  // namespace coppice::cuda::flatten
