#include "kernels/cuda/early_launch.h"

#include "kernels/cuda/probe.h"

namespace coppice::cuda {

bool overlaps_kernels() {
  // One device per process (has_cuda_device()).
  static const bool does = [] {
    int device = 0, major = 0, driver = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           cudaDriverGetVersion(&driver) == cudaSuccess && major >= 9 && driver >= 12030 &&
           (code_version() == 0 || code_version() >= 90);
  }();
  return does;
}

bool has_clusters() {
  static const bool does = [] {
    int device = 0, major = 0;
    return cudaGetDevice(&device) == cudaSuccess &&
           cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) ==
               cudaSuccess &&
           major >= 9 && code_version() >= 90;
  }();
  return does;
}

}  // namespace coppice::cuda
