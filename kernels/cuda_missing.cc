// Stands in for kernels/cuda where the backend is not built.
#include "base/error.h"
#include "kernels/device.h"

namespace coppice {

std::unique_ptr<Device> make_cuda_device(const CudaOptions&) {
  throw_usage(
      "--device cuda: this build has no CUDA backend; build it with nvcc 12.4 or later, or "
      "use --device cpu");
}

bool has_cuda_device(std::string* why_not, bool* present) {
  if (present != nullptr) *present = false;
  if (why_not != nullptr) *why_not = "this build has no CUDA backend";
  return false;
}

}  // namespace coppice
