// The kernel's variants of one head dimension: every size of tile. They are compiled in several
// files (hopper_head_64.cu, hopper_window_or_cap_64.cu, ...), side by side.
#pragma once

#include "kernels/cuda/attention/hopper_kernel.cuh"
#include "kernels/cuda/attention/hopper_launch.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda::hopper {

/// Whether this build has the kernel's code for the current device.
template <typename V>
bool prepare() {
  constexpr auto kernel = attend<V>;
  // A block of 9.0 may have 227 KB. The dynamic part begins at a multiple of 1024 bytes.
  static_assert((sizeof(SharedState<V>) + sizeof(RangePlan) + sizeof(BlockRange) + 1023) / 1024 *
                        1024 +
                    sizeof(SharedTiles<V>) <=
                227 * 1024);
  cudaFuncAttributes attributes;
  check(cudaFuncGetAttributes(&attributes, kernel), "attributes of attention");
  if (attributes.sharedSizeBytes < sizeof(SharedState<V>)) return false;
  check(
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, shared_bytes<V>()),
      "shared memory of attention");
  int resident = 0;
  check(cudaOccupancyMaxActiveBlocksPerMultiprocessor(&resident, kernel, V::threads,
                                                      shared_bytes<V>()),
        "occupancy of attention");
  return resident > 0;
}

/// Prepares the variants that `with` visits.
template <typename With>
bool prepare_all(bool window_or_cap, With with) {
  bool present = true;
  for (const std::int32_t rows : range_row_tiles) {
    for (const std::int32_t tokens : {range_half_tokens, range_tile_tokens}) {
      if (!range_tiles_exist({rows, tokens}, window_or_cap)) continue;
      for (const bool leaves_out : {false, true}) {
        if (leaves_out && !halves_leave_out({rows, tokens}, window_or_cap)) continue;
        with(AttentionLaunch{AttentionKernel::ranges, {rows, tokens}, leaves_out},
             [&]<typename V>(V) { present = prepare<V>() && present; });
      }
    }
  }
  return present;
}

template <int head_dim>
bool prepare_head() {
  return prepare_all(
      false, [](const AttentionLaunch& of, auto visit) { with_tiles<head_dim>(of, visit); });
}
template <int head_dim>
bool prepare_window_or_cap() {
  return prepare_all(true, [](const AttentionLaunch& of, auto visit) {
    with_window_or_cap_tiles<head_dim>(of, visit);
  });
}

template <int head_dim>
void launch_head(const AttentionLaunch& of, const Arguments& arguments, std::int32_t blocks,
                 cudaStream_t stream) {
  with_tiles<head_dim>(of, [&]<typename V>(V) { launch<V>(arguments, NoTrace{}, blocks, stream); });
}
template <int head_dim>
void launch_window_or_cap(const AttentionLaunch& of, const Arguments& arguments,
                          std::int32_t blocks, cudaStream_t stream) {
  with_window_or_cap_tiles<head_dim>(
      of, [&]<typename V>(V) { launch<V>(arguments, NoTrace{}, blocks, stream); });
}

}  // namespace coppice::cuda::hopper
