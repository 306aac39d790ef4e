// Waiting for a number that a kernel writes to page-locked memory once its results are there: much
// less than a copy engine and the driver need to say so.
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>

#include "base/error.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda {

/// Where blocks, or rows, tell that they are done.
struct CompletionView {
  std::uint32_t* finished = nullptr;  ///< in the GPU's memory; 0 between launches
  std::uint32_t* mark = nullptr;      ///< in page-locked memory
};

/// Spins until `*mark` has come to `number`; false where all work of `stream` has ended without it.
/// Errors of the stream are thrown, told as those of `what`.
inline bool reached(std::uint32_t* mark, std::uint32_t number, cudaStream_t stream,
                    const char* what) {
  const std::atomic_ref<std::uint32_t> seen(*mark);
  const auto has_come = [&] {
    // Numbers follow each other; one may already have been followed by the next.
    return static_cast<std::int32_t>(seen.load(std::memory_order_acquire) - number) >= 0;
  };
  // Asking the driver takes its time, and is needed only where a kernel failed.
  constexpr int looks = 4096;
  while (true) {
    for (int i = 0; i < looks; ++i) {
      if (has_come()) return true;
    }
    const cudaError_t status = cudaStreamQuery(stream);
    if (status == cudaErrorNotReady) continue;
    check(status, what);
    return has_come();
  }
}

}  // namespace coppice::cuda
