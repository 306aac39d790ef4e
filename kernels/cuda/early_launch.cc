#include "kernels/cuda/early_launch.h"

#include "kernels/cuda/probe.h"

namespace coppice::cuda {

// GPUs that share a model are of one kind: what is asked of one of them holds.
bool overlaps_kernels() {
  static const bool does = [] {
    int device = 0, major = 0, driver = 0;
    const bool asked =
        cudaGetDevice(&device) == cudaSuccess &&
        cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
        cudaDriverGetVersion(&driver) == cudaSuccess;
    return asked && major >= 9 && driver >= 12030 && (code_version() == 0 || code_version() >= 90);
  }();
  return does;
}

}  // namespace coppice::cuda
