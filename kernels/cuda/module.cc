// The entry point of libcoppice_cuda.so.
#include "kernels/cuda/backend.h"
#include "kernels/cuda_module.h"

extern "C" __attribute__((visibility("default"))) const coppice::CudaModule*
coppice_cuda_module() noexcept {
  static const coppice::CudaModule module = {
      coppice::cuda_module_build(), coppice::cuda::make_device,   coppice::cuda::has_device,
      COPPICE_CUDA_ARCHITECTURES,   coppice::cuda::describe_card, coppice::cuda::device_count};
  return &module;
}
