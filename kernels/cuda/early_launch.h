// Launches that begin, where the former kernel of the stream lets them, before that one's end.
#pragma once

#include <cuda_runtime.h>

#include <utility>

#include "kernels/cuda/error.h"

namespace coppice::cuda {

/// Whether the current device overlaps kernels, this build's code for it waits where it has to, and
/// the driver takes that into recordings: compute capability 9.0, for both, and driver 12.3, or
/// later.
bool overlaps_kernels();

/// In clusters of so many blocks.
struct Grid {
  Grid(dim3 all, unsigned of_cluster = 1) : blocks(all), cluster(of_cluster) {}

  dim3 blocks;
  unsigned cluster;
};

/// Launches a kernel that calls wait_for_former_kernels() (kernel_order.cuh) before it touches
/// anything that others write or read.
template <typename... Parameters, typename... Values>
void launch_early(void (*kernel)(Parameters...), const Grid& grid, unsigned threads,
                  std::size_t shared_bytes, cudaStream_t stream, Values&&... values) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (overlaps_kernels()) {
    cudaLaunchAttribute& overlap = attributes[count++];
    overlap.id = cudaLaunchAttributeProgrammaticStreamSerialization;
    overlap.val.programmaticStreamSerializationAllowed = 1;
  }
  if (grid.cluster > 1) {
    cudaLaunchAttribute& cluster = attributes[count++];
    cluster.id = cudaLaunchAttributeClusterDimension;
    cluster.val.clusterDim = {grid.cluster, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid.blocks;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Values>(values)...), "launch");
}

}  // namespace coppice::cuda
