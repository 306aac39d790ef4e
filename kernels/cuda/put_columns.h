// Puts parts of rows side by side.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>

#include "kernels/cuda/error.h"

namespace coppice::cuda {

/// Queues copies of all ranks' parts to `all` [rows, sum of widths]: of rank r, part_of(r) [rows,
/// widths[r]], behind those of the ranks before it.
template <typename PartOf>
void put_columns(std::span<const std::int64_t> widths, std::int32_t rows, const PartOf& part_of,
                 float* all, cudaStream_t stream) {
  const auto bytes = [](std::int64_t values) {
    return static_cast<std::size_t>(values) * sizeof(float);
  };
  const std::int64_t stride = std::accumulate(widths.begin(), widths.end(), std::int64_t{0});
  for (std::size_t rank = 0; rank < widths.size(); ++rank) {
    const float* const part = part_of(static_cast<int>(rank));
    check(cudaMemcpy2DAsync(all, bytes(stride), part, bytes(widths[rank]), bytes(widths[rank]),
                            static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice, stream),
          "putting logits together");
    all += widths[rank];
  }
}

}  // namespace coppice::cuda
