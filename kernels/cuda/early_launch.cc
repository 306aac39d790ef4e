#include "kernels/cuda/early_launch.h"

#include "kernels/cuda/probe.h"

namespace coppice::cuda {

namespace {

// 0 where the device does not say.
int major_version() {
  int device = 0, major = 0;
  const bool known =
      cudaGetDevice(&device) == cudaSuccess &&
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess;
  return known ? major : 0;
}

}  // namespace

// One device per process (has_cuda_device()): what is asked once holds.

bool overlaps_kernels() {
  static const bool does = [] {
    int driver = 0;
    return major_version() >= 9 && cudaDriverGetVersion(&driver) == cudaSuccess &&
           driver >= 12030 && (code_version() == 0 || code_version() >= 90);
  }();
  return does;
}

bool has_clusters() {
  static const bool does = major_version() >= 9 && code_version() >= 90;
  return does;
}

}  // namespace coppice::cuda
