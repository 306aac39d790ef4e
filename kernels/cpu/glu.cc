#include "kernels/cpu/glu.h"

#include "kernels/cpu/workers.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/glu.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

template <Activation kActivation, class D, class V = hn::Vec<D>>
HWY_INLINE V activated(D d, V x) {
  auto t = x;
  if constexpr (kActivation == Activation::gelu_tanh) {
    const auto square = hn::Mul(x, x);
    t = hn::Mul(x, hn::MulAdd(square, hn::Set(d, 0.0713548163f), hn::Set(d, 1.59576912f)));
  }
  // With e = exp(-|t|) the logistic is 1 / (1 + e) for t >= 0 and e / (1 + e) below.
  const auto one = hn::Set(d, 1.0f);
  const auto e = exp2_nonpositive(d, hn::Neg(hn::Mul(hn::Abs(t), hn::Set(d, 1.44269504f))));
  const auto numerator = hn::IfThenElse(hn::Lt(t, hn::Zero(d)), e, one);
  return hn::Mul(x, hn::Div(numerator, hn::Add(one, e)));
}

template <Activation kActivation, class Out>
void gate_row(const float* gate, const float* up, std::int64_t n, Out* out) {
  const hn::ScalableTag<float> d;
  const hn::CappedTag<float, 1> d1;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto active = activated<kActivation>(d, hn::LoadU(d, gate + i));
    store_activation(d, hn::Mul(active, hn::LoadU(d, up + i)), out + i);
  }
  for (; i < n; ++i) {
    const auto active = activated<kActivation>(d1, hn::LoadU(d1, gate + i));
    store_activation(hn::GetLane(active) * up[i], out + i);
  }
}

template <Activation kActivation>
void gate_rows_of(const float* gate_up, std::int64_t begin, std::int64_t end, std::int64_t n,
                  DType out_dtype, void* out) {
  for (std::int64_t r = begin; r < end; ++r) {
    const float* gate = gate_up + r * 2 * n;
    if (out_dtype == DType::f32) {
      gate_row<kActivation>(gate, gate + n, n, static_cast<float*>(out) + r * n);
    } else {
      gate_row<kActivation>(gate, gate + n, n, static_cast<std::uint16_t*>(out) + r * n);
    }
  }
}

void gate_rows(Activation activation, const float* gate_up, std::int64_t begin, std::int64_t end,
               std::int64_t n, DType out_dtype, void* out) {
  switch (activation) {
    case Activation::silu:
      return gate_rows_of<Activation::silu>(gate_up, begin, end, n, out_dtype, out);
    case Activation::gelu_tanh:
      return gate_rows_of<Activation::gelu_tanh>(gate_up, begin, end, n, out_dtype, out);
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(gate_rows);

void glu(Activation activation, const float* gate_up, std::int32_t rows, std::int64_t n,
         DType out_dtype, void* out, Workers& workers) {
  workers.run_rows(rows, n, 1 << 12, [&](std::int64_t begin, std::int64_t end) {
    HWY_DYNAMIC_DISPATCH(gate_rows)(activation, gate_up, begin, end, n, out_dtype, out);
  });
}

}  // namespace coppice::cpu
#endif
