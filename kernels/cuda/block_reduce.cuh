// Sums, maxima and running sums over the threads of a block. Every thread of the block calls
// them; the block has whole warps, at most 32. Operations run in a fixed order, so that results
// are the same bits every time. A scratch array may be used again at once: each function begins
// with a barrier where that needs one.
#pragma once

#include <cstdint>

namespace coppice::cuda {

inline constexpr int warp_size = 32;
inline constexpr unsigned all_lanes = 0xffffffffu;

__device__ inline int lane_id() { return static_cast<int>(threadIdx.x) % warp_size; }
__device__ inline int warp_id() { return static_cast<int>(threadIdx.x) / warp_size; }
__device__ inline int block_warps() { return static_cast<int>(blockDim.x) / warp_size; }

/// One value per warp, in shared memory.
template <typename T>
struct WarpValues {
  T at[warp_size];
};

struct LargerOf {
  template <typename T>
  __device__ T operator()(T a, T b) const {
    return a > b ? a : b;
  }
};

/// Explicitly rounded, so that no sum is contracted with a product in its argument.
struct SumOf {
  __device__ double operator()(double a, double b) const { return __dadd_rn(a, b); }
  __device__ float operator()(float a, float b) const { return __fadd_rn(a, b); }
  __device__ std::uint64_t operator()(std::uint64_t a, std::uint64_t b) const { return a + b; }
};

/// The same bits in all lanes: each step combines the same two values on both sides.
template <typename T, typename Operation>
__device__ T warp_reduce(T value, Operation operation) {
#pragma unroll
  for (int distance = warp_size / 2; distance > 0; distance /= 2) {
    value = operation(value, __shfl_xor_sync(all_lanes, value, distance));
  }
  return value;
}

/// To all threads. `identity` stands for warps that the block does not have.
template <typename T, typename Operation>
__device__ T block_reduce(T value, Operation operation, T identity, WarpValues<T>& scratch) {
  value = warp_reduce(value, operation);
  __syncthreads();  // whoever read the scratch before has done so
  if (lane_id() == 0) scratch.at[warp_id()] = value;
  __syncthreads();
  return warp_reduce(lane_id() < block_warps() ? scratch.at[lane_id()] : identity, operation);
}

template <typename T>
struct RunningSum {
  T before;  ///< sum over the threads before this one
  T total;   ///< over all of them
};

/// Inclusive running sum over a warp's lanes.
template <typename T>
__device__ T warp_running_sum(T value) {
#pragma unroll
  for (int distance = 1; distance < warp_size; distance *= 2) {
    const T lower = __shfl_up_sync(all_lanes, value, distance);
    if (lane_id() >= distance) value = SumOf()(value, lower);
  }
  return value;
}

template <typename T>
__device__ RunningSum<T> block_running_sum(T value, WarpValues<T>& scratch) {
  const T inclusive = warp_running_sum(value);
  T exclusive = __shfl_up_sync(all_lanes, inclusive, 1);
  if (lane_id() == 0) exclusive = T(0);
  __syncthreads();  // whoever read the scratch before has done so
  if (lane_id() == warp_size - 1) scratch.at[warp_id()] = inclusive;
  __syncthreads();
  // Every warp adds the warps' sums for itself.
  const T warps = warp_running_sum(lane_id() < block_warps() ? scratch.at[lane_id()] : T(0));
  const T total = __shfl_sync(all_lanes, warps, warp_size - 1);
  const T before_warp = __shfl_sync(all_lanes, warps, warp_id() == 0 ? 0 : warp_id() - 1);
  return {warp_id() == 0 ? exclusive : SumOf()(before_warp, exclusive), total};
}

}  // namespace coppice::cuda
