#include "kernels/cpu/swiglu.h"

#include <cmath>

#include "kernels/cpu/workers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/swiglu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

template <class Out>
void gate_row(const float* gate, const float* up, std::int64_t n, Out* out) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto one = hn::Set(d, 1.0f);
  const auto log2e = hn::Set(d, 1.44269504f);
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto g = hn::LoadU(d, gate + i);
    // With e = exp(-|g|) the logistic is 1 / (1 + e) for g >= 0 and e / (1 + e) below.
    const auto e = exp2_nonpositive(d, hn::Neg(hn::Mul(hn::Abs(g), log2e)));
    const auto numerator = hn::IfThenElse(hn::Lt(g, hn::Zero(d)), e, one);
    const auto logistic = hn::Div(numerator, hn::Add(one, e));
    store_activation(d, hn::Mul(hn::Mul(g, logistic), hn::LoadU(d, up + i)), out + i);
  }
  for (; i < n; ++i) store_activation(gate[i] / (1.0f + std::exp(-gate[i])) * up[i], out + i);
}

void gate_rows(const float* gate_up, std::int64_t begin, std::int64_t end, std::int64_t n,
               DType out_dtype, void* out) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* gate = gate_up + r * 2 * n;
    if (out_dtype == DType::f32) {
      gate_row(gate, gate + n, n, static_cast<float*>(out) + r * n);
    } else {
      gate_row(gate, gate + n, n, static_cast<std::uint16_t*>(out) + r * n);
    }
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(gate_rows);

void swiglu(const float* gate_up, std::int32_t rows, std::int64_t n, DType out_dtype, void* out,
            Workers& workers) {
  workers.run_rows(rows, n, 1 << 12, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(gate_rows)(gate_up, begin, end, n, out_dtype, out);
  });
}

}  // namespace coppice::cpu
#endif
