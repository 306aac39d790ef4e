#include "kernels/cpu/rms_norm.h"

#include "kernels/cpu/workers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/rms_norm-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

void norm_rows(const float* x, const float* weight, float epsilon, std::int64_t begin,
               std::int64_t end, std::int64_t n, DType out_dtype, void* out) {
  for (std::int64_t r = begin; r < end; ++r) {
    if (out_dtype == DType::f32) {
      norm_row<false>(x + r * n, weight, epsilon, n, static_cast<float*>(out) + r * n);
    } else {
      norm_row<false>(x + r * n, weight, epsilon, n, static_cast<std::uint16_t*>(out) + r * n);
    }
  }
}

void add_norm_rows(const float* x, const float* weight, float epsilon, std::int64_t begin,
                   std::int64_t end, std::int64_t n, float* into) {
  for (std::int64_t r = begin; r < end; ++r) {
    norm_row<true>(x + r * n, weight, epsilon, n, into + r * n);
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(norm_rows);
HWY_EXPORT(add_norm_rows);

void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
              std::int64_t hidden, DType out_dtype, void* out, Workers& workers) {
  workers.run_rows(rows, hidden, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_rows)(x, weight, epsilon, begin, end, hidden, out_dtype, out);
  });
}

void add_rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                  std::int64_t hidden, float* into, Workers& workers) {
  workers.run_rows(rows, hidden, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(add_norm_rows)(x, weight, epsilon, begin, end, hidden, into);
  });
}

}  // namespace coppice::cpu
#endif
