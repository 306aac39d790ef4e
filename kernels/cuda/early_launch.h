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

/// Whether the current device has clusters of blocks, and this build code for it that uses them.
bool has_clusters();

/// launch_early() with clusters of `cluster` blocks, neighbours in the grid's x; 1: none.
template <typename... Parameters, typename... Values>
void launch_clusters_early(void (*kernel)(Parameters...), unsigned cluster, dim3 grid,
                           unsigned threads, std::size_t shared_bytes, cudaStream_t stream,
                           Values&&... values) {
  cudaLaunchAttribute attributes[2] = {};
  unsigned count = 0;
  if (overlaps_kernels()) {
    attributes[count].id = cudaLaunchAttributeProgrammaticStreamSerialization;
    attributes[count++].val.programmaticStreamSerializationAllowed = 1;
  }
  if (cluster > 1) {
    attributes[count].id = cudaLaunchAttributeClusterDimension;
    attributes[count++].val.clusterDim = {cluster, 1, 1};
  }
  cudaLaunchConfig_t config{};
  config.gridDim = grid;
  config.blockDim = dim3(threads);
  config.dynamicSmemBytes = shared_bytes;
  config.stream = stream;
  config.attrs = attributes;
  config.numAttrs = count;
  check(cudaLaunchKernelEx(&config, kernel, std::forward<Values>(values)...), "launch");
}

/// Launches a kernel that calls wait_for_former_kernels() (kernel_order.cuh) before it touches
/// anything that others write or read.
template <typename... Parameters, typename... Values>
void launch_early(void (*kernel)(Parameters...), dim3 grid, unsigned threads,
                  std::size_t shared_bytes, cudaStream_t stream, Values&&... values) {
  launch_clusters_early(kernel, 1, grid, threads, shared_bytes, stream,
                        std::forward<Values>(values)...);
}

}  // namespace coppice::cuda
