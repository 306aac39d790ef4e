#include "kernels/cpu/rms_norm.h"

#include <cmath>

#include "kernels/cpu/workers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rms_norm.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

template <class Out>
void norm_row(const float* x, const float* weight, float epsilon, std::int64_t n, Out* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  auto sum0 = hn::Zero(d), sum1 = hn::Zero(d);
  std::int64_t i = 0;
  for (; i + 2 * lanes <= n; i += 2 * lanes) {
    const auto a = hn::LoadU(d, x + i), b = hn::LoadU(d, x + i + lanes);
    sum0 = hn::MulAdd(a, a, sum0);
    sum1 = hn::MulAdd(b, b, sum1);
  }
  float sum = hn::GetLane(hn::SumOfLanes(d, hn::Add(sum0, sum1)));
  for (; i < n; ++i) sum += x[i] * x[i];
  const float factor = 1.0f / std::sqrt(sum / static_cast<float>(n) + epsilon);
  const auto factors = hn::Set(d, factor);
  for (i = 0; i + lanes <= n; i += lanes) {
    const auto y = hn::Mul(hn::Mul(hn::LoadU(d, x + i), factors), hn::LoadU(d, weight + i));
    store_activation(d, y, out + i);
  }
  for (; i < n; ++i) store_activation(x[i] * factor * weight[i], out + i);
}

void norm_rows(const float* x, const float* weight, float epsilon, std::int64_t begin,
               std::int64_t end, std::int64_t n, DType out_dtype, void* out) {
  for (std::int64_t r = begin; r < end; ++r) {
    if (out_dtype == DType::f32) {
      norm_row(x + r * n, weight, epsilon, n, static_cast<float*>(out) + r * n);
    } else {
      norm_row(x + r * n, weight, epsilon, n, static_cast<std::uint16_t*>(out) + r * n);
    }
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(norm_rows);

void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
              std::int64_t hidden, DType out_dtype, void* out, Workers& workers) {
  workers.run_rows(rows, hidden, 1 << 14, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(norm_rows)(x, weight, epsilon, begin, end, hidden, out_dtype, out);
  });
}

}  // namespace coppice::cpu
#endif
