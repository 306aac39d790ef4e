#include "kernels/cuda/attention/tensor_map.h"

#include <cuda_runtime_api.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "kernels/cuda/error.h"

namespace coppice::cuda {
namespace {

/// The driver's function, found without linking the driver's library.
auto find_encoder() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                         cudaEnableDefault, &found),
        "looking for cuTensorMapEncodeTiled");
#else
  check(cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &found),
        "looking for cuTensorMapEncodeTiled");
#endif
  if (found != cudaDriverEntryPointSuccess) {
    throw_failure("the CUDA driver has no cuTensorMapEncodeTiled; it is older than 12.0");
  }
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

CUtensorMap encoded(CUtensorMapDataType type, CUtensorMapSwizzle swizzle, const void* base,
                    std::span<const std::uint64_t> sizes, std::span<const std::uint64_t> strides,
                    std::span<const std::uint32_t> box, const char* what) {
  static const auto encode = find_encoder();
  std::array<cuuint32_t, 5> steps;
  steps.fill(1);
  std::array<cuuint64_t, 5> all_sizes{}, all_strides{};
  std::array<cuuint32_t, 5> all_box{};
  std::copy(sizes.begin(), sizes.end(), all_sizes.begin());
  std::copy(strides.begin(), strides.end(), all_strides.begin());
  std::copy(box.begin(), box.end(), all_box.begin());
  CUtensorMap map;
  const CUresult status = encode(
      &map, type, static_cast<cuuint32_t>(sizes.size()), const_cast<void*>(base), all_sizes.data(),
      all_strides.data(), all_box.data(), steps.data(), CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
      CU_TENSOR_MAP_L2_PROMOTION_L2_128B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (status != CUDA_SUCCESS) {
    throw_failure(cat("describing ", what, " to the copy engine failed: CUDA driver error ",
                      static_cast<int>(status)));
  }
  return map;
}

}  // namespace

CUtensorMap make_tensor_map(const void* base, std::span<const std::uint64_t> sizes,
                            std::span<const std::uint64_t> strides,
                            std::span<const std::uint32_t> box, const char* what) {
  return encoded(CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, CU_TENSOR_MAP_SWIZZLE_128B, base, sizes, strides,
                 box, what);
}

CUtensorMap make_word_map(const void* base, std::span<const std::uint64_t> sizes,
                          std::span<const std::uint64_t> strides,
                          std::span<const std::uint32_t> box, const char* what) {
  return encoded(CU_TENSOR_MAP_DATA_TYPE_INT64, CU_TENSOR_MAP_SWIZZLE_NONE, base, sizes, strides,
                 box, what);
}

}  // namespace coppice::cuda
