// The kernel's variants of one head dimension: every size of tile. Each head dimension is compiled
// in a file of its own (hopper_head_64.cu, hopper_head_128.cu), for the variants take minutes.
#pragma once

#include "kernels/cuda/attention/hopper_kernel.cuh"
#include "kernels/cuda/attention/hopper_launch.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda::hopper {

/// Whether this build has the kernel's code for the current device.
template <typename V>
bool prepare() {
  constexpr auto kernel = attend<V>;
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), "attributes of attention");
  if (attributes.sharedSizeBytes < sizeof(SharedState<V>)) return false;
  check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<V>()),
      "shared memory of attention");
  int resident = 0;
  check(
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, threads, shared_bytes<V>()),
      "occupancy of attention");
  return resident > 0;
}

template <int head_dim>
bool prepare_head() {
  bool present = true;
  for (const std::int32_t rows : range_row_tiles) {
    for (const std::int32_t tokens : {range_half_tokens, range_tile_tokens}) {
      if (!range_tiles_exist({rows, tokens})) continue;
      with_tiles<head_dim>({rows, tokens},
                           [&]<typename V>(V) { present = prepare<V>() && present; });
    }
  }
  return present;
}

template <int head_dim>
void launch_head(RangeTiles tiles, const Arguments& arguments, std::int32_t blocks,
                 cudaStream_t stream) {
  with_tiles<head_dim>(tiles,
                       [&]<typename V>(V) { launch<V>(arguments, NoTrace{}, blocks, stream); });
}

}  // namespace coppice::cuda::hopper
