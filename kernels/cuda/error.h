// Every CUDA call and launch is checked; a failure becomes an Error that names the operation.
#pragma once

#include <cuda_runtime_api.h>

namespace coppice::cuda {

[[noreturn]] void throw_cuda(cudaError_t status, const char* operation);

inline void check(cudaError_t status, const char* operation) {
  if (status != cudaSuccess) throw_cuda(status, operation);
}

/// After a launch, before which no error was pending. (A kernel's own faults show at the next
/// synchronisation.)
inline void check_launch(const char* kernel) { check(cudaGetLastError(), kernel); }

}  // namespace coppice::cuda
