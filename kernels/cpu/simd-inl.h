// Shared pieces of the vectorised operations; included once per Highway target.
#if defined(COPPICE_KERNELS_CPU_SIMD_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_SIMD_INL_H_
#undef COPPICE_KERNELS_CPU_SIMD_INL_H_
#else
#define COPPICE_KERNELS_CPU_SIMD_INL_H_
#endif

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "hwy/highway.h"
#include "kernels/device.h"

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

/// A number of a type as memory holds it.
template <DType kType>
using Stored = std::conditional_t<kType == DType::f32, float, std::uint16_t>;

/// Lanes widened to f32, which is exact.
template <DType kType, class D, class V = hn::Vec<D>>
HWY_INLINE V load_as(D d, const Stored<kType>* from) {
  if constexpr (kType == DType::f32) {
    return hn::LoadU(d, from);
  } else if constexpr (kType == DType::bf16) {
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> d16;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(d16, from))));
  } else {
#if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM
    const hn::Rebind<hwy::float16_t, D> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
#else
    // Without instructions for it Highway 1.0 takes infinity for 65536, and NaN for a number.
    const hn::RebindToUnsigned<D> du;
    const hn::Rebind<std::uint16_t, D> d16;
    const auto bits = hn::PromoteTo(du, hn::LoadU(d16, from));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7fffu));
    const auto finite = hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1p112f));
    const auto special = hn::Eq(hn::And(bits, hn::Set(du, 0x7c00u)), hn::Set(du, 0x7c00u));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(bits, magnitude));
    const auto exponent = hn::Or(sign, hn::IfThenElseZero(special, hn::Set(du, 0x7f800000u)));
    return hn::BitCast(d, hn::Or(hn::BitCast(du, finite), exponent));
#endif
  }
}
template <DType kType>
HWY_INLINE float value_as(const Stored<kType>* from) {
  return hn::GetLane(load_as<kType>(hn::CappedTag<float, 1>(), from));
}

/// Stores f32 lanes rounded to nearest even. What f16 cannot hold stays finite: 65504.
template <DType kType, class D, class V = hn::Vec<D>>
HWY_INLINE void store_as(D d, V v, Stored<kType>* to) {
  if constexpr (kType != DType::f16) {
    store_activation(d, v, to);
  } else {
    const hn::RebindToUnsigned<D> du;
    const hn::RebindToSigned<D> di;
    const hn::Rebind<std::uint16_t, D> d16;
    const auto set = [&](std::int32_t bits) HWY_ATTR { return hn::Set(di, bits); };
    const auto bits = hn::BitCast(di, v);
    const auto magnitude = hn::And(bits, set(0x7fffffff));
    const auto sign = hn::ShiftRight<16>(hn::BitCast(du, hn::Xor(bits, magnitude)));
    // Below 2^-14 an f16 counts 2^-24s, as an f32 between 1/2 and 1 does: adding 1/2 rounds.
    const auto half = hn::Set(d, 0.5f);
    const auto tiny =
        hn::Sub(hn::BitCast(di, hn::Add(hn::BitCast(d, magnitude), half)), hn::BitCast(di, half));
    // Above, 13 bits of the fraction go and the exponent's bias falls from 127 to 15.
    const auto odd = hn::And(hn::ShiftRight<13>(magnitude), set(1));
    const auto usual =
        hn::ShiftRight<13>(hn::Sub(hn::Add(magnitude, hn::Add(odd, set(0xfff))), set(112 << 23)));
    const auto finite =
        hn::Min(hn::IfThenElse(hn::Lt(magnitude, set(113 << 23)), tiny, usual), set(0x7bff));
    const auto infinity = set(0x7f800000);
    const auto special = hn::IfThenElse(hn::Gt(magnitude, infinity), set(0x7e00), set(0x7c00));
    const auto all = hn::IfThenElse(hn::Lt(magnitude, infinity), finite, special);
    hn::StoreU(hn::DemoteTo(d16, hn::Or(all, hn::BitCast(di, sign))), d16, to);
  }
}
template <DType kType>
HWY_INLINE void store_value_as(float value, Stored<kType>* to) {
  const hn::CappedTag<float, 1> d;
  store_as<kType>(d, hn::Set(d, value), to);
}

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

/// cap tanh(x / cap), relative error below 5e-7. Near 0, where 1 - exp(-2 |z|) would lose digits,
/// tanh(z) / z is a polynomial of z^2, which interpolates up to 5/8 in Chebyshev points. NaN stays.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V soft_capped(D d, V x, float cap) {
  const auto one = hn::Set(d, 1.0f);
  const auto z = hn::Mul(hn::Abs(x), hn::Set(d, 1.0f / cap));
  const auto square = hn::Mul(z, z);
  auto p = hn::Set(d, -0.00609671418f);
  p = hn::MulAdd(p, square, hn::Set(d, 0.0209971797f));
  p = hn::MulAdd(p, square, hn::Set(d, -0.0538509078f));
  p = hn::MulAdd(p, square, hn::Set(d, 0.133327693f));
  p = hn::MulAdd(p, square, hn::Set(d, -0.333333284f));
  const auto near = hn::MulAdd(hn::Mul(z, square), p, z);
  const auto e = exp2_nonpositive(d, hn::Mul(z, hn::Set(d, -2.88539008f)));
  const auto far = hn::Div(hn::Sub(one, e), hn::Add(one, e));
  const auto tanh = hn::IfThenElse(hn::Lt(z, hn::Set(d, 0.625f)), near, far);
  return hn::IfThenElse(hn::IsNaN(x), x, hn::CopySign(hn::Mul(tanh, hn::Set(d, cap)), x));
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
