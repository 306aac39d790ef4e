// The kernel that joins the partial results of DeFT-Flatten attention.
#pragma once

#include "kernels/cuda/attention/attention_kernel.cuh"

namespace coppice::cuda::flatten {

inline constexpr int join_threads = 128;

/// One (query, head), a pair, at a time: threads are groups of head_dim / 4, group g sums the
/// partial results g, g + groups, ..., and the groups' sums are added in order. partials_of(pair)
/// says how many the pair has, `count`, and where each of them lies, at(i).
template <int head_dim, typename PartialsOf>
__device__ void join_pairs(const Operands& operands, std::int32_t rows, PartialsOf partials_of) {
  constexpr int columns = head_dim / 4;
  constexpr int groups = join_threads / columns;
  constexpr int loads_in_flight = 4;
  __shared__ float maxima[join_threads / 32];
  __shared__ float weights[groups];
  __shared__ float4 sums[groups][columns];

  const std::int32_t pairs = rows * operands.heads();
  const int thread = static_cast<int>(threadIdx.x);
  const int group = thread / columns;
  const int column = thread % columns;

  for (auto pair = static_cast<std::int32_t>(blockIdx.x); pair < pairs;
       pair += static_cast<std::int32_t>(gridDim.x)) {
    const auto partials = partials_of(pair);

    float maximum = -INFINITY;
    for (std::int32_t i = thread; i < partials.count; i += join_threads) {
      maximum = fmaxf(maximum, operands.partial_lse[partials.at(i)]);
    }
    for (int step = 16; step > 0; step /= 2) {
      maximum = fmaxf(maximum, __shfl_xor_sync(all_lanes, maximum, step));
    }
    if (thread % 32 == 0) maxima[thread / 32] = maximum;
    __syncthreads();
    for (const float other : maxima) maximum = fmaxf(maximum, other);
    if (maximum == -INFINITY) maximum = 0.0f;  // a query that sees nothing: all weights 0

    if (group < groups) {
      float4 sum{0.0f, 0.0f, 0.0f, 0.0f};
      float weight_sum = 0.0f;
      for (std::int32_t first = group; first < partials.count; first += groups * loads_in_flight) {
        float weight[loads_in_flight];
        float4 part[loads_in_flight];
#pragma unroll
        for (int i = 0; i < loads_in_flight; ++i) {
          const std::int32_t at = first + i * groups;
          weight[i] = at < partials.count
                          ? power_of_two(operands.partial_lse[partials.at(at)] - maximum)
                          : 0.0f;
          part[i] = float4{0.0f, 0.0f, 0.0f, 0.0f};
          // Where the query sees nothing of the item, nothing was written.
          if (weight[i] != 0.0f) {
            part[i] = *reinterpret_cast<const float4*>(operands.partial_out +
                                                       partials.at(at) * head_dim + 4 * column);
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
    }
    __syncthreads();
    if (thread < columns) {
      float4 sum = sums[0][thread];
      float weight_sum = weights[0];
      for (int other = 1; other < groups; ++other) {
        const float4 part = sums[other][thread];
        sum.x += part.x;
        sum.y += part.y;
        sum.z += part.z;
        sum.w += part.w;
        weight_sum += weights[other];
      }
      const float inverse = weight_sum == 0.0f ? 0.0f : 1.0f / weight_sum;
      *reinterpret_cast<uint2*>(operands.out + std::int64_t{pair} * head_dim + 4 * thread) =
          uint2{pack(sum.x * inverse, sum.y * inverse), pack(sum.z * inverse, sum.w * inverse)};
    }
  }
}

/// Partial results of a pair that lie side by side, by chunk.
struct ChunkPartials {
  std::int64_t first;
  std::int32_t count;

  __device__ std::int64_t at(std::int32_t chunk) const { return first + chunk; }
};

/// Grid: any number of blocks.
template <int head_dim>
__global__ void __launch_bounds__(join_threads) join_partials(Arguments arguments) {
  let_next_kernel_begin();
  wait_for_former_kernels();
  const std::int32_t chunks = arguments.pass.scalars->chunks;
  if (chunks == 1) return;
  join_pairs<head_dim>(arguments, arguments.pass.scalars->rows, [&](std::int32_t pair) {
    return ChunkPartials{std::int64_t{pair} * chunks, chunks};
  });
}

}  // namespace coppice::cuda::flatten
