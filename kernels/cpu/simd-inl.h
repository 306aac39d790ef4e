// Shared pieces of the vectorised operations; included once per Highway target.
#if defined(COPPICE_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_SIMD_INL_H_
#undef COPPICE_KERNELS_CPU_SIMD_INL_H_
#else
#define COPPICE_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstdint>
#include <cstring>

#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// bf16 nearest to x, ties to even; NaN stays NaN.
HWY_INLINE std::uint16_t bf16_of(float x) {
  std::uint32_t bits;
  std::memcpy(&bits, &x, sizeof bits);
  if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<std::uint16_t>((bits >> 16) | 0x40u);
  bits += 0x7fffu + ((bits >> 16) & 1u);
  return static_cast<std::uint16_t>(bits >> 16);
}

/// Stores f32 lanes as f32 or as bf16 rounded to nearest even.
template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_activation(D d, V v, float* out) {
  hn::StoreU(v, d, out);
}
template <class D, class V = hn::Vec<D>>
HWY_INLINE void store_activation([[maybe_unused]] D d, V v, std::uint16_t* out) {
  const hn::RebindToUnsigned<D> du;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto bits = hn::BitCast(du, v);
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(du, 1u));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(du, 0x7fffu)));
  const auto quiet = hn::Or(bits, hn::Set(du, 0x400000u));
  const auto nan = hn::RebindMask(du, hn::IsNaN(v));
  const auto high = hn::ShiftRight<16>(hn::IfThenElse(nan, quiet, rounded));
  hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, high)), d16, out);
}
HWY_INLINE void store_activation(float v, float* out) { *out = v; }
HWY_INLINE void store_activation(float v, std::uint16_t* out) { *out = bf16_of(v); }

/// 2^x for x <= 0, relative error below 2e-7; 0 below -126 and for minus infinity. The
/// polynomial interpolates 2^f on [-1/2, 1/2] in Chebyshev points.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp2_nonpositive(D d, V x) {
  const hn::RebindToSigned<D> di;
  const auto in_range = hn::Ge(x, hn::Set(d, -126.0f));
  const auto clamped = hn::Max(x, hn::Set(d, -126.0f));
  const auto whole = hn::Round(clamped);
  const auto f = hn::Sub(clamped, whole);
  auto p = hn::Set(d, 0.000154614447f);
  p = hn::MulAdd(p, f, hn::Set(d, 0.00134004282f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.00961805668f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.0555032723f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.240226509f));
  p = hn::MulAdd(p, f, hn::Set(d, 0.693147207f));
  p = hn::MulAdd(p, f, hn::Set(d, 1.0f));
  const auto exponent = hn::ShiftLeft<23>(hn::ConvertTo(di, whole));
  const auto scaled = hn::BitCast(d, hn::Add(hn::BitCast(di, p), exponent));
  return hn::IfThenElseZero(in_range, scaled);
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
