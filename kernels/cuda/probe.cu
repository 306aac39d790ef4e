#include <cuda_runtime.h>

#include "kernels/cuda/probe.h"

namespace coppice::cuda {
namespace {

__global__ void probe() {}

}  // namespace

cudaError_t probe_device() {
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, probe);
  (void)cudaGetLastError();
  const bool no_code = status == cudaErrorInvalidDeviceFunction ||
                       status == cudaErrorUnsupportedPtxVersion || status == cudaErrorInvalidPtx;
  return no_code ? cudaErrorNoKernelImageForDevice : status;
}

int code_version() {
  cudaFuncAttributes attributes;
  const cudaError_t status = cudaFuncGetAttributes(&attributes, probe);
  (void)cudaGetLastError();
  return status == cudaSuccess ? attributes.ptxVersion : 0;
}

}  // namespace coppice::cuda
