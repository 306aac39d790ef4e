#include "bench/matrix_rate.h"

#include <cublasLt.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <type_traits>

#include "base/error.h"
#include "bench/device_array.h"
#include "bench/random_fill.h"
#include "bench/timing.h"

namespace coppice::bench {
namespace {

constexpr std::uint64_t side = 8192;
constexpr std::size_t workspace_bytes = std::size_t{64} << 20;
constexpr std::int32_t repetitions = 21;

void check_blas(cublasStatus_t status, const char* what) {
  if (status != CUBLAS_STATUS_SUCCESS) {
    throw_failure(cat("cublasLt: ", what, ": ", cublasLtGetStatusName(status)));
  }
}

template <typename Handle, cublasStatus_t (*destroy)(Handle)>
struct Destroy {
  void operator()(Handle handle) const { (void)destroy(handle); }
};
template <typename Handle, cublasStatus_t (*destroy)(Handle)>
using Owner = std::unique_ptr<std::remove_pointer_t<Handle>, Destroy<Handle, destroy>>;

}  // namespace

double matrix_rate(cudaStream_t stream) {
  const std::size_t elements = side * side;
  const DeviceArray<std::uint16_t> a(elements), b(elements), c(elements);
  const DeviceArray<std::byte> workspace(workspace_bytes);
  fill_normal_bf16(a.data(), elements, 1, stream);
  fill_normal_bf16(b.data(), elements, 2, stream);

  cublasLtHandle_t handle = nullptr;
  check_blas(cublasLtCreate(&handle), "start");
  const Owner<cublasLtHandle_t, cublasLtDestroy> handle_owner(handle);
  cublasLtMatmulDesc_t operation = nullptr;
  check_blas(cublasLtMatmulDescCreate(&operation, CUBLAS_COMPUTE_32F, CUDA_R_32F), "description");
  const Owner<cublasLtMatmulDesc_t, cublasLtMatmulDescDestroy> operation_owner(operation);
  const cublasOperation_t transposed = CUBLAS_OP_T;
  check_blas(cublasLtMatmulDescSetAttribute(operation, CUBLASLT_MATMUL_DESC_TRANSA, &transposed,
                                            sizeof(transposed)),
             "description");
  cublasLtMatrixLayout_t layout = nullptr;
  check_blas(cublasLtMatrixLayoutCreate(&layout, CUDA_R_16BF, side, side, side), "layout");
  const Owner<cublasLtMatrixLayout_t, cublasLtMatrixLayoutDestroy> layout_owner(layout);
  cublasLtMatmulPreference_t preference = nullptr;
  check_blas(cublasLtMatmulPreferenceCreate(&preference), "preference");
  const Owner<cublasLtMatmulPreference_t, cublasLtMatmulPreferenceDestroy> preference_owner(
      preference);
  check_blas(
      cublasLtMatmulPreferenceSetAttribute(preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES,
                                           &workspace_bytes, sizeof(workspace_bytes)),
      "preference");
  std::array<cublasLtMatmulHeuristicResult_t, 8> results = {};
  int count = 0;
  check_blas(
      cublasLtMatmulAlgoGetHeuristic(handle, operation, layout, layout, layout, layout, preference,
                                     static_cast<int>(results.size()), results.data(), &count),
      "choice of an algorithm");

  const float alpha = 1.0f;
  const float beta = 0.0f;
  double least_seconds = 0.0;
  for (int i = 0; i < count; ++i) {
    const auto& result = results[static_cast<std::size_t>(i)];
    if (result.state != CUBLAS_STATUS_SUCCESS) continue;
    const double seconds = median_seconds(
        repetitions,
        [&] {
          check_blas(cublasLtMatmul(handle, operation, &alpha, a.data(), layout, b.data(), layout,
                                    &beta, c.data(), layout, c.data(), layout, &result.algo,
                                    workspace.data(), workspace_bytes, stream),
                     "matrix product");
        },
        stream);
    if (least_seconds == 0.0 || seconds < least_seconds) least_seconds = seconds;
  }
  if (least_seconds == 0.0) throw_failure("cublasLt has no product of 8192 x 8192 bf16 matrices");
  return 2.0 * side * side * side / least_seconds;
}

}  // namespace coppice::bench
