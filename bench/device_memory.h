// Cleared memory of the GPU, for benches that use kernels without a device.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>

#include "kernels/cuda/error.h"
#include "kernels/device.h"

namespace coppice::bench {

/// An Allocate (kernels/cuda/linear/weight_upload.h).
inline DeviceBuffer allocate(std::size_t bytes, const char* purpose) {
  void* memory = nullptr;
  cuda::check(cudaMalloc(&memory, bytes), purpose);
  cuda::check(cudaMemset(memory, 0, bytes), purpose);
  cuda::check(cudaDeviceSynchronize(), purpose);
  return DeviceBuffer(
      memory, bytes, [](void* p, void*) { (void)cudaFree(p); }, nullptr);
}

}  // namespace coppice::bench
