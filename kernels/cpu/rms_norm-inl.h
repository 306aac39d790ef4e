// The norm of one row, for rows of a model's width and for heads; included once per Highway target.
#if defined(COPPICE_KERNELS_CPU_RMS_NORM_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_RMS_NORM_INL_H_
#undef COPPICE_KERNELS_CPU_RMS_NORM_INL_H_
#else
#define COPPICE_KERNELS_CPU_RMS_NORM_INL_H_
#endif

#include <cmath>

#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

/// out[i] = y, or += y with `kAdd` (f32 only), for y = x[i] / sqrt(mean(x^2) + epsilon) weight[i].
/// `out` may be x.
template <bool kAdd, class Out>
HWY_INLINE void norm_row(const float* x, const float* weight, float epsilon, std::int64_t n,
                         Out* out) {
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
    auto y = hn::Mul(hn::Mul(hn::LoadU(d, x + i), factors), hn::LoadU(d, weight + i));
    if constexpr (kAdd) y = hn::Add(hn::LoadU(d, out + i), y);
    store_activation(d, y, out + i);
  }
  for (; i < n; ++i) {
    float y = x[i] * factor * weight[i];
    if constexpr (kAdd) y = out[i] + y;
    store_activation(y, out + i);
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
