// A kernel before attention that lets it begin early and only then, after a while, writes what it
// is to wait for: as rotary embedding does, but slowly.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace coppice::testing {

struct LateCopy {
  const void* from;
  void* to;
  std::size_t bytes;  ///< a multiple of 4
};

/// Queues the copies, begun after about `delay_us` microseconds.
void write_late(const LateCopy& queries, const LateCopy& keys, const LateCopy& values,
                double delay_us, cudaStream_t stream);

}  // namespace coppice::testing
