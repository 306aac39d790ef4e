#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/noise.cc"
#include "kernels/noise.h"

#include <Random123/philox.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/random.h"
#include "kernels/exponential_noise.h"

// This file is compiled without contraction of products and sums: what is rounded, and when, is
// part of the noise's definition (kernels/exponential_noise.h).
HWY_BEFORE_NAMESPACE();
namespace coppice {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR

float InverseExponential(double u) {
  namespace define = exponential_noise;
  const bool near_one = u > define::two_thirds;
  const auto v = static_cast<float>(near_one ? 1.0 - u : u);
  const auto bits = std::bit_cast<std::int32_t>(v);
  const std::int32_t exponent_bits = (bits - define::two_thirds_bits) & define::exponent_mask;
  const float r = near_one ? -v : std::bit_cast<float>(bits - exponent_bits) - 1.0f;
  const float exponent = near_one ? 0.0f : static_cast<float>(exponent_bits >> 23);
  float p = define::c7;
  for (const float c : define::rest) p = std::fma(p, r, c);
  return 1.0f / -std::fma(exponent, define::log_2, r + r * r * p);
}

void InverseExponentialNoise(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position,
                             std::size_t n, float* out) {
  double u[4];
  for (std::size_t token = 0; token < n; ++token) {
    if (token % 4 == 0) coupled_uniforms(seed, sequence, position, token, u);
    out[token] = InverseExponential(u[token % 4]);
  }
}

#else

using U64 = hn::ScalableTag<std::uint64_t>;
using U32Halves = hn::Repartition<std::uint32_t, U64>;
using F64 = hn::RebindToFloat<U64>;
using F32 = hn::Repartition<float, F64>;
using F32Half = hn::Half<F32>;
using I32 = hn::RebindToSigned<F32>;
using VU64 = hn::Vec<U64>;
using VF64 = hn::Vec<F64>;
using VF32 = hn::Vec<F32>;
constexpr U64 u64;
constexpr U32Halves u32_halves;
constexpr F64 f64;
constexpr F32 f32;
constexpr F32Half f32_half;
constexpr I32 i32;

struct Wide {
  VU64 high, low;
};

// a * b, of 128 bits, from products of halves.
template <std::uint64_t b>
HWY_INLINE Wide Multiply(VU64 a) {
  const auto half_product = [](VU64 x, std::uint64_t y) HWY_ATTR {
    return hn::MulEven(hn::BitCast(u32_halves, x), hn::BitCast(u32_halves, hn::Set(u64, y)));
  };
  const VU64 lower_half = hn::Set(u64, 0xffffffffu), a_high = hn::ShiftRight<32>(a);
  const VU64 low = half_product(a, b & 0xffffffffu);
  const VU64 middle = hn::Add(half_product(a_high, b & 0xffffffffu), hn::ShiftRight<32>(low));
  const VU64 other = hn::Add(half_product(a, b >> 32), hn::And(middle, lower_half));
  const VU64 high = hn::Add(hn::Add(half_product(a_high, b >> 32), hn::ShiftRight<32>(middle)),
                            hn::ShiftRight<32>(other));
  return {high, hn::Or(hn::ShiftLeft<32>(other), hn::And(low, lower_half))};
}

struct Words {
  VU64 at[4];
};

// One round of Philox 4x64 (Salmon et al., 2011), one counter a lane.
HWY_INLINE Words Round(const Words& x, VU64 key0, VU64 key1) {
  const Wide first = Multiply<0xd2e7470ee14c6c93u>(x.at[0]);
  const Wide second = Multiply<0xca5a826395121157u>(x.at[2]);
  return {{hn::Xor(hn::Xor(second.high, x.at[1]), key0), second.low,
           hn::Xor(hn::Xor(first.high, x.at[3]), key1), first.low}};
}

// u of random bits, less 1 where it is above 2/3; as float. (u is built as a double between 1 and
// 2, and everything up to the float is exact.)
HWY_INLINE hn::Vec<F32Half> UniformOrLessOne(VU64 bits) {
  const VU64 one = hn::Set(u64, 0x3ff0000000000000u);
  const VF64 from_one = hn::BitCast(f64, hn::Or(hn::ShiftRight<12>(bits), one));
  const VF64 u = hn::Sub(from_one, hn::Set(f64, 1.0 - 0x1p-53));
  const auto near_one = hn::Gt(u, hn::Set(f64, exponential_noise::two_thirds));
  return hn::DemoteTo(f32_half, hn::IfThenElse(near_one, hn::Sub(u, hn::Set(f64, 1.0)), u));
}

#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
// a b + c, rounded once. The product is exact in double; the sum is rounded to odd, which a second
// rounding to float does not see (Boldo and Melquiond, 2008).
HWY_INLINE hn::Vec<F32Half> FusedHalf(hn::Vec<F32Half> a, hn::Vec<F32Half> b, hn::Vec<F32Half> c) {
  const hn::RebindToSigned<F64> i64;
  const VF64 product = hn::Mul(hn::PromoteTo(f64, a), hn::PromoteTo(f64, b));
  const VF64 addend = hn::PromoteTo(f64, c), sum = hn::Add(product, addend);
  const VF64 moved = hn::Sub(sum, product);
  const VF64 lost = hn::Add(hn::Sub(product, hn::Sub(sum, moved)), hn::Sub(addend, moved));
  const auto bits = hn::BitCast(i64, sum), one = hn::Set(i64, 1);
  // Towards what was lost: away from 0 if it has the sum's sign.
  const auto step = hn::Or(hn::BroadcastSignBit(hn::BitCast(i64, hn::Xor(lost, sum))), one);
  const auto inexact = hn::RebindMask(i64, hn::Ne(lost, hn::Zero(f64)));
  const auto even = hn::Eq(hn::And(bits, one), hn::Zero(i64));
  const auto odd = hn::Add(bits, hn::IfThenElseZero(hn::And(inexact, even), step));
  return hn::DemoteTo(f32_half, hn::BitCast(f64, odd));
}
HWY_INLINE VF32 Fused(VF32 a, VF32 b, VF32 c) {
  return hn::Combine(
      f32,
      FusedHalf(hn::UpperHalf(f32_half, a), hn::UpperHalf(f32_half, b), hn::UpperHalf(f32_half, c)),
      FusedHalf(hn::LowerHalf(f32_half, a), hn::LowerHalf(f32_half, b),
                hn::LowerHalf(f32_half, c)));
}
#else
HWY_INLINE VF32 Fused(VF32 a, VF32 b, VF32 c) { return hn::MulAdd(a, b, c); }
#endif

// 1 / E of random bits, those of the lower lanes first.
HWY_INLINE VF32 InverseExponential(VU64 lower, VU64 upper) {
  namespace define = exponential_noise;
  const VF32 x = hn::Combine(f32, UniformOrLessOne(upper), UniformOrLessOne(lower));
  const auto near_one = hn::Lt(x, hn::Zero(f32));
  const auto bits = hn::BitCast(i32, x);
  const auto exponent_bits = hn::And(hn::Sub(bits, hn::Set(i32, define::two_thirds_bits)),
                                     hn::Set(i32, define::exponent_mask));
  const VF32 scaled = hn::BitCast(f32, hn::Sub(bits, exponent_bits));
  const VF32 r = hn::IfThenElse(near_one, x, hn::Sub(scaled, hn::Set(f32, 1.0f)));
  const VF32 exponent =
      hn::IfThenZeroElse(near_one, hn::ConvertTo(f32, hn::ShiftRight<23>(exponent_bits)));
  VF32 p = hn::Set(f32, define::c7);
  for (const float c : define::rest) p = Fused(p, r, hn::Set(f32, c));
  const VF32 tail = hn::Mul(hn::Mul(r, r), p);
  const VF32 log_u = Fused(exponent, hn::Set(f32, define::log_2), hn::Add(r, tail));
  return hn::Div(hn::Set(f32, 1.0f), hn::Neg(log_u));
}

// Noise of n tokens from `first`, a multiple of 4, in whole runs of 4 vectors of float.
void FillNoise(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position,
               std::size_t first, std::size_t n, float* out) {
  const std::size_t lanes = hn::Lanes(u64);
  constexpr auto stream = static_cast<std::uint64_t>(RandomStream::coupled);
  const VU64 at_sequence = hn::Set(u64, sequence), at_position = hn::Set(u64, position);
  VU64 group = hn::Iota(u64, first / 4);
  const VU64 step = hn::Set(u64, lanes);
  for (std::size_t i = 0; i < n; i += 8 * lanes) {
    const VU64 next = hn::Add(group, step);
    // Two at a time: a round is a chain of operations that wait for one another.
    Words a{{at_sequence, at_position, group, hn::Zero(u64)}};
    Words b{{at_sequence, at_position, next, hn::Zero(u64)}};
    std::uint64_t key0 = seed, key1 = stream;
    HWY_UNROLL(10)
    for (int round = 0; round < 10; ++round) {
      a = Round(a, hn::Set(u64, key0), hn::Set(u64, key1));
      b = Round(b, hn::Set(u64, key0), hn::Set(u64, key1));
      key0 += 0x9e3779b97f4a7c15u;
      key1 += 0xbb67ae8584caa73bu;
    }
    hn::StoreInterleaved4(
        InverseExponential(a.at[0], b.at[0]), InverseExponential(a.at[1], b.at[1]),
        InverseExponential(a.at[2], b.at[2]), InverseExponential(a.at[3], b.at[3]), f32, out + i);
    group = hn::Add(next, step);
  }
}

void InverseExponentialNoise(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position,
                             std::size_t n, float* out) {
  const std::size_t run = 4 * hn::Lanes(f32), whole = n / run * run;
  FillNoise(seed, sequence, position, 0, whole, out);
  if (whole == n) return;
  HWY_ALIGN float rest[4 * HWY_MAX_BYTES / sizeof(float)];
  FillNoise(seed, sequence, position, whole, n - whole, rest);
  std::copy_n(rest, n - whole, out + whole);
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace HWY_NAMESPACE
}  // namespace coppice
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice {
namespace {
HWY_EXPORT(InverseExponentialNoise);
}  // namespace

void inverse_exponential_noise(std::uint64_t seed, std::uint64_t sequence, std::uint64_t position,
                               std::span<float> out) {
  HWY_DYNAMIC_DISPATCH(InverseExponentialNoise)
  (seed, sequence, position, out.size(), out.data());
}

namespace {
constexpr std::size_t most_cached_bytes = std::size_t{128} << 20;
/// Below it texts' trees find little: the cache then serves fewer texts.
constexpr std::size_t least_rows_of_text = 4;
}  // namespace

NoiseCache::NoiseCache(std::int64_t vocab_size, std::int32_t rows, std::int32_t texts)
    : vocab_size_(vocab_size) {
  const auto all_rows = static_cast<std::size_t>(std::max(rows, 1));
  const auto all_texts = static_cast<std::size_t>(std::max(texts, 1));
  const std::size_t row_bytes = static_cast<std::size_t>(vocab_size) * sizeof(float);
  const std::size_t most_rows =
      std::max(all_rows, most_cached_bytes / std::max<std::size_t>(row_bytes, 1));
  rows_of_text_ =
      std::clamp(most_rows / all_texts, std::min(least_rows_of_text, all_rows), all_rows);
  texts_.resize(std::min(all_texts, most_rows / rows_of_text_));
  rows_.resize(texts_.size() * rows_of_text_);
}

std::size_t NoiseCache::place_of(std::uint64_t seed, std::uint64_t sequence) {
  std::size_t oldest = 0;
  for (std::size_t place = 0; place < texts_.size(); ++place) {
    const Text& text = texts_[place];
    if (text.turn > 0 && text.seed == seed && text.sequence == sequence) return place;
    if (text.turn < texts_[oldest].turn) oldest = place;
  }
  texts_[oldest].seed = seed;
  texts_[oldest].sequence = sequence;
  return oldest;
}

std::span<const float> NoiseCache::row(std::uint64_t seed, std::uint64_t sequence,
                                       std::uint64_t position) {
  if (const Text& last = texts_[place_];
      last.turn == 0 || last.seed != seed || last.sequence != sequence) {
    place_ = place_of(seed, sequence);
    texts_[place_].turn = ++turns_;
  }
  Row& row = rows_[place_ * rows_of_text_ + position % rows_of_text_];
  const bool known = !row.values.empty() && row.seed == seed && row.sequence == sequence &&
                     row.position == position;
  if (!known) {
    row.values.resize(static_cast<std::size_t>(vocab_size_));
    row.seed = seed;
    row.sequence = sequence;
    row.position = position;
    inverse_exponential_noise(seed, sequence, position, row.values);
    ++computed_;
  }
  return row.values;
}

}  // namespace coppice
#endif  // HWY_ONCE
