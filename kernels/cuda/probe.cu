#include "kernels/cuda/probe.h"

#include <cuda_runtime.h>

namespace coppice::cuda {
namespace {

__global__ void probe() {}

}  // namespace

bool kernels_fit_device() {
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, probe);
  (void)cudaGetLastError();
  return status == cudaSuccess;
}

}  // namespace coppice::cuda
