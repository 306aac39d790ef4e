// Products with quantised weights (packed_format.h), whose bits are taken apart in registers. Sums
// of a group are whole numbers, scaled and added in f32 in the order of the inputs, each addition
// fused: results do not depend on the instruction set.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "kernels/block_fields.h"
#include "kernels/cpu/packed_format.h"
#include "kernels/cpu/quantised_rows.h"
#include "kernels/cpu/weight_blocks.h"

// Highway leaves the target out that has the instruction for quads, unless asked.
#define HWY_WANT_AVX3_DL

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_quantised.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/store_sums-inl.h"

HWY_BEFORE_NAMESPACE();

// Four products of a lane and their sum in one instruction. Processors of this target have it;
// Highway 1.0 does not name it.
#undef COPPICE_DOT_QUADS
#if HWY_ARCH_X86 && HWY_COMPILER_GCC_ACTUAL && HWY_TARGET <= HWY_AVX3_DL
#define COPPICE_DOT_QUADS 1
#pragma GCC target("avx512vnni")
#else
#define COPPICE_DOT_QUADS 0
#endif
// Two, in 16 bits.
#undef COPPICE_DOT_PAIRS
#define COPPICE_DOT_PAIRS (HWY_ARCH_X86 && HWY_TARGET <= HWY_SSSE3 && !COPPICE_DOT_QUADS)

namespace coppice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#if HWY_TARGET == HWY_SCALAR
// No vectors: a number at a time.

void quantised_blocks(const LinearProduct& p, std::int64_t block_begin, std::int64_t block_end) {
  const std::int64_t in = p.weights.in, groups = in / group_inputs;
  const PackedFormat format = packed_format(p.weights.format);
  const QuantisedRows& rows = *p.quantised;
  std::vector<float> sums(static_cast<std::size_t>(p.rows));
  for (std::int64_t j = block_begin * block_width;
       j < std::min(block_end * block_width, p.weights.out); ++j) {
    const std::byte* const strip =
        p.weights.data.as<const std::byte>() + j / strip_width * strip_bytes(p.weights.format, in);
    std::fill(sums.begin(), sums.end(), 0.0f);
    for (std::int64_t group = 0; group < groups; ++group) {
      const UnpackedGroup unpacked = unpack_group(p.weights.format, strip, group, j % strip_width);
      for (std::int32_t r = 0; r < p.rows; ++r) {
        const std::int32_t first =
            r / QuantisedRows::most_tile_rows * QuantisedRows::most_tile_rows;
        const std::int64_t width = rows.tile_rows(first), in_tile = r - first;
        const std::byte* const at =
            rows.tile(first) + group * width * static_cast<std::int64_t>(sizeof(RowGroup<1>));
        const auto* const x = reinterpret_cast<const std::int8_t*>(at) + in_tile * group_inputs;
        const float x_scale = reinterpret_cast<const float*>(at + width * group_inputs)[in_tile];
        float& sum = sums[static_cast<std::size_t>(r)];
        for (std::int32_t s = 0; s < format.scales_of_group(); ++s) {
          std::int32_t products = 0, of_x = 0;
          for (std::int32_t i = s * format.shared; i < (s + 1) * format.shared; ++i) {
            products += unpacked.numbers[i] * x[i];
            of_x += x[i];
          }
          sum = std::fma(static_cast<float>(products), unpacked.scales[s] * x_scale, sum);
          if (format.minima) {
            sum = std::fma(unpacked.minima[s], x_scale * static_cast<float>(of_x), sum);
          }
        }
      }
    }
    for (std::int32_t r = 0; r < p.rows; ++r) {
      float total = sums[static_cast<std::size_t>(r)];
      float& y = p.y[r * p.stride + j];
      if (p.bias != nullptr) total += p.bias[j];
      y = p.accumulate ? y + total : total;
    }
  }
}

void expand_any(const WeightBlocks& weights, std::int64_t block, std::int64_t begin,
                std::int64_t end, float* out) {
  std::vector<float> row(static_cast<std::size_t>(weights.in));
  for (std::int64_t j = 0; j < block_width; ++j) {
    unpack_row(weights, block * block_width + j, row.data());
    for (std::int64_t i = begin; i < end; ++i) {
      out[(i - begin) * block_width + j] = row[static_cast<std::size_t>(i)];
    }
  }
}

#else

using Floats = hn::CappedTag<float, 16>;
using Ints = hn::RebindToSigned<Floats>;
using Words = hn::RebindToUnsigned<Floats>;
using Bytes = hn::Repartition<std::uint8_t, Floats>;
using SignedBytes = hn::Repartition<std::int8_t, Floats>;
using Shorts = hn::Repartition<std::int16_t, Floats>;
using UnsignedShorts = hn::Repartition<std::uint16_t, Floats>;
using Float = hn::Vec<Floats>;
using Int = hn::Vec<Ints>;
using Byte = hn::Vec<Bytes>;
using SignedByte = hn::Vec<SignedBytes>;
constexpr int kLanes = hn::MaxLanes(Floats());
constexpr int kParts = static_cast<int>(strip_width) / kLanes;  ///< vectors per strip
constexpr int kMostRows = HWY_TARGET <= HWY_AVX3 ? 8 : 4;
constexpr std::int64_t kLine = 64;
constexpr std::int64_t kAhead = 12 << 10;
/// Rows whose sums are kept from chunk to chunk.
constexpr std::int32_t kMostCarriedRows = 96;

HWY_INLINE Float multiply_add(Float a, Float b, Float c) {
#if HWY_ARCH_X86 && HWY_TARGET > HWY_AVX2
  HWY_ALIGN float x[kLanes], y[kLanes], z[kLanes];
  hn::Store(a, Floats(), x);
  hn::Store(b, Floats(), y);
  hn::Store(c, Floats(), z);
  for (int i = 0; i < kLanes; ++i) z[i] = std::fma(x[i], y[i], z[i]);
  return hn::Load(Floats(), z);
#else
  return hn::MulAdd(a, b, c);
#endif
}

/// Bits of the numbers of quad kQuad, at the low end of each byte.
template <int kQuad, int kBits>
HWY_INLINE Byte bits_of(const std::uint8_t* planes) {
  constexpr int kOfPlane = 8 / kBits;
  const Byte all = hn::LoadU(Bytes(), planes + kQuad / kOfPlane * quad_bytes);
  if constexpr (kBits == 8) return all;
  constexpr int kShift = kQuad % kOfPlane * kBits;
  const auto moved =
      hn::BitCast(Bytes(), hn::ShiftRight<kShift>(hn::BitCast(UnsignedShorts(), all)));
  return hn::And(moved, hn::Set(Bytes(), (1 << kBits) - 1));
}

HWY_ALIGN constexpr std::array<std::int8_t, 16> kTable = block_fields::iq4_numbers;

/// The numbers of quad kQuad as kept: of formats that look numbers up, what is found plus offset.
template <PackedFormat kFormat, int kQuad>
HWY_INLINE Byte kept(const std::uint8_t* low) {
  Byte number = bits_of<kQuad, kFormat.low_bits>(low);
  if constexpr (kFormat.looked_up) {
    const auto table = hn::LoadDup128(SignedBytes(), kTable.data());
    number = hn::BitCast(Bytes(), hn::TableLookupBytes(table, hn::BitCast(SignedBytes(), number)));
    number = hn::Xor(number, hn::Set(Bytes(), 0x80));
  }
  if constexpr (kFormat.high_bits > 0) {
    const Byte high = bits_of<kQuad, kFormat.high_bits>(low + kFormat.low_bytes());
    const auto moved = hn::ShiftLeft<kFormat.low_bits>(hn::BitCast(UnsignedShorts(), high));
    number = hn::Or(number, hn::BitCast(Bytes(), moved));
  }
  return number;
}

HWY_INLINE Float halves(const std::uint8_t* at) {
  const hn::Rebind<hwy::float16_t, Floats> half;
  return hn::PromoteTo(Floats(), hn::LoadU(half, reinterpret_cast<const hwy::float16_t*>(at)));
}

/// A scale and a minimum for each output of a vector.
struct Pair {
  Float scale, minimum;
};

template <PackedFormat kFormat>
HWY_INLINE Pair header(const std::uint8_t* super, int part) {
  const std::uint8_t* const at = super + 2 * kLanes * part;
  Pair pair{halves(at), hn::Zero(Floats())};
  if constexpr (kFormat.zeros) {
    const hn::Rebind<std::uint8_t, Floats> narrow;
    const auto zeros = hn::LoadU(narrow, super + 2 * strip_width + kLanes * part);
    pair.minimum =
        hn::Neg(hn::Mul(pair.scale, hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), zeros))));
  } else if constexpr (kFormat.minima) {
    pair.minimum = halves(at + 2 * strip_width);
    if constexpr (kFormat.sub_scales != SubScales::none) pair.minimum = hn::Neg(pair.minimum);
  }
  return pair;
}

/// Those of scale kScale of a group.
template <PackedFormat kFormat, int kScale>
HWY_INLINE Pair scales(const Pair& of_super, const std::uint8_t* at) {
  if constexpr (kFormat.sub_scales == SubScales::none) return of_super;
  const hn::Rebind<std::uint8_t, Floats> narrow;
  const std::uint8_t* const sub = at + kScale * strip_width;
  const auto to_float = [](auto bytes) HWY_ATTR {
    return hn::ConvertTo(Floats(), hn::PromoteTo(Ints(), bytes));
  };
  if constexpr (kFormat.sub_scales == SubScales::nibbles) {
    const auto both = hn::PromoteTo(Words(), hn::LoadU(narrow, sub));
    const auto low = hn::BitCast(Ints(), hn::And(both, hn::Set(Words(), 15)));
    const auto high = hn::BitCast(Ints(), hn::ShiftRight<4>(both));
    return {hn::Mul(of_super.scale, hn::ConvertTo(Floats(), low)),
            hn::Mul(of_super.minimum, hn::ConvertTo(Floats(), high))};
  } else {
    const hn::Rebind<std::int8_t, Floats> narrow_signed;
    Pair pair = of_super;
    pair.scale = hn::Mul(
        pair.scale, to_float(hn::LoadU(narrow_signed, reinterpret_cast<const std::int8_t*>(sub))));
    if constexpr (kFormat.minima) {
      pair.minimum = hn::Mul(
          pair.minimum, to_float(hn::LoadU(narrow, sub + kFormat.scales_of_group() * strip_width)));
    }
    return pair;
  }
}

#if COPPICE_DOT_PAIRS
#if HWY_TARGET <= HWY_AVX3
HWY_INLINE hn::Vec<Shorts> pairs(Byte a, SignedByte b) {
  return hn::Vec<Shorts>{_mm512_maddubs_epi16(a.raw, b.raw)};
}
HWY_INLINE Int pair_sums(hn::Vec<Shorts> a) {
  return Int{_mm512_madd_epi16(a.raw, _mm512_set1_epi16(1))};
}
HWY_INLINE SignedByte with_sign(SignedByte x, SignedByte of) {
  return hn::IfThenElse(hn::Lt(of, hn::Zero(SignedBytes())), hn::Neg(x), x);
}
#elif HWY_TARGET <= HWY_AVX2
HWY_INLINE hn::Vec<Shorts> pairs(Byte a, SignedByte b) {
  return hn::Vec<Shorts>{_mm256_maddubs_epi16(a.raw, b.raw)};
}
HWY_INLINE Int pair_sums(hn::Vec<Shorts> a) {
  return Int{_mm256_madd_epi16(a.raw, _mm256_set1_epi16(1))};
}
HWY_INLINE SignedByte with_sign(SignedByte x, SignedByte of) {
  return SignedByte{_mm256_sign_epi8(x.raw, of.raw)};
}
#else
HWY_INLINE hn::Vec<Shorts> pairs(Byte a, SignedByte b) {
  return hn::Vec<Shorts>{_mm_maddubs_epi16(a.raw, b.raw)};
}
HWY_INLINE Int pair_sums(hn::Vec<Shorts> a) {
  return Int{_mm_madd_epi16(a.raw, _mm_set1_epi16(1))};
}
HWY_INLINE SignedByte with_sign(SignedByte x, SignedByte of) {
  return SignedByte{_mm_sign_epi8(x.raw, of.raw)};
}
#endif
#endif

/// Quads whose pairs of products, 2 times 127 times the largest number at most, stay in 16 bits; 0:
/// not even one's, so that numbers are taken as they are, the offset of 128 subtracted, and nothing
/// is left for sums to start with.
template <PackedFormat kFormat>
constexpr int kSafeQuads = COPPICE_DOT_QUADS         ? 1
                           : kFormat.largest() <= 31 ? 4
                           : kFormat.largest() <= 63 ? 2
                                                     : 0;

/// Sums of kept numbers times x over the quads of a scale, row by row; start included.
template <int kRows, int kShared, int kSafe>
class QuadSums {
 public:
  /// start(r): what the sum of row r begins with.
  template <class Start>
  HWY_INLINE explicit QuadSums(const Start& start) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sum_[r] = kSigned ? hn::Zero(Ints()) : start(r);
#if COPPICE_DOT_PAIRS
      if constexpr (!kSigned) pairs_[r] = hn::Zero(Shorts());
#endif
    }
  }

  /// x_of(r): four numbers of row r, as one lane.
  template <int kQuad, class X>
  HWY_INLINE void add(Byte number, const X& x_of) {
#if COPPICE_DOT_QUADS
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sum_[r] = Int{_mm512_dpbusd_epi32(sum_[r].raw, number.raw, _mm512_set1_epi32(x_of(r)))};
    }
#elif COPPICE_DOT_PAIRS
    if constexpr (kSigned) {
      // Unsigned, two products may leave 16 bits.
      const auto value = hn::BitCast(SignedBytes(), hn::Xor(number, hn::Set(Bytes(), 0x80)));
      const auto magnitude = hn::BitCast(Bytes(), hn::Abs(value));
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const auto x = hn::BitCast(SignedBytes(), hn::Set(Ints(), x_of(r)));
        sum_[r] = hn::Add(sum_[r], pair_sums(pairs(magnitude, with_sign(x, value))));
      }
    } else {
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const auto x = hn::BitCast(SignedBytes(), hn::Set(Ints(), x_of(r)));
        pairs_[r] = hn::Add(pairs_[r], pairs(number, x));
        if constexpr ((kQuad + 1) % kSafe == 0) {
          sum_[r] = hn::Add(sum_[r], pair_sums(pairs_[r]));
          pairs_[r] = hn::Zero(Shorts());
        }
      }
    }
#else
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const auto a = hn::BitCast(Words(), number);
      const auto b = hn::Set(Ints(), x_of(r));
      const auto byte = hn::Set(Words(), 255);
      const auto value = kSigned ? 128 : 0;
      const auto term = [&](auto shifted, auto x) HWY_ATTR {
        return hn::Mul(hn::Sub(hn::BitCast(Ints(), hn::And(shifted, byte)), hn::Set(Ints(), value)),
                       hn::ShiftRight<24>(x));
      };
      sum_[r] = hn::Add(sum_[r], term(a, hn::ShiftLeft<24>(b)));
      sum_[r] = hn::Add(sum_[r], term(hn::ShiftRight<8>(a), hn::ShiftLeft<16>(b)));
      sum_[r] = hn::Add(sum_[r], term(hn::ShiftRight<16>(a), hn::ShiftLeft<8>(b)));
      sum_[r] = hn::Add(sum_[r], term(hn::ShiftRight<24>(a), b));
    }
#endif
  }

  HWY_INLINE Float whole(int r) const { return hn::ConvertTo(Floats(), sum_[r]); }

 private:
  static constexpr bool kSigned = kSafe == 0;
  Int sum_[kRows];
#if COPPICE_DOT_PAIRS
  hn::Vec<Shorts> pairs_[kSigned ? 1 : kRows];
#endif
};

template <PackedFormat kFormat, int kFirst, class Use, int... kQuads>
HWY_INLINE void for_quads(const std::uint8_t* low, const Use& use,
                          std::integer_sequence<int, kQuads...>) {
  (use.template operator()<kFirst + kQuads>(kept<kFormat, kFirst + kQuads>(low)), ...);
}

/// Four numbers of a row, for every lane.
template <int kRows>
HWY_INLINE std::int32_t quad(const RowGroup<kRows>& x, int row, int index) {
  std::int32_t lane;
  __builtin_memcpy(&lane, x.numbers[row] + 4 * index, sizeof lane);
  return lane;
}

/// Which of a row group's sums belongs to scale kScale.
template <int kShared, int kScale>
constexpr int kSumOf = kShared == 16 ? 1 + kScale : 0;

/// A power of two's.
constexpr int exponent_of(int power) { return power <= 1 ? 0 : 1 + exponent_of(power / 2); }

/// What products of numbers as kept are too large by, taken off.
template <int kOffset>
HWY_INLINE Int start_of(std::int32_t negated_sum) {
  if constexpr (kOffset == 0) return hn::Zero(Ints());
  return hn::ShiftLeft<exponent_of(kOffset)>(hn::Set(Ints(), negated_sum));
}

/// sum + products scale x_scale + minimum scaled_sum
template <bool kMinima>
HWY_INLINE Float scaled(Float products, const Pair& pair, float x_scale, float scaled_sum,
                        Float sum) {
  sum = multiply_add(products, hn::Mul(pair.scale, hn::Set(Floats(), x_scale)), sum);
  if constexpr (kMinima) {
    sum = multiply_add(pair.minimum, hn::Set(Floats(), scaled_sum), sum);
  }
  return sum;
}

/// One row times a strip; `column` is its first output.
template <PackedFormat kFormat>
HWY_NOINLINE void row_by_strip(const LinearProduct& p, const std::uint8_t* strip,
                               std::int64_t column) {
  constexpr std::int64_t kGroupBytes = kFormat.group_bytes();
  constexpr int kQuads = kFormat.shared / 4;
  const auto groups = static_cast<int>(p.weights.in / group_inputs);
  const auto* const x = reinterpret_cast<const RowGroup<1>*>(p.quantised->tile(0));
  for (int part = 0; part < kParts; ++part) {
    Float sum = hn::Zero(Floats());
    const std::uint8_t* at = strip;
    int group = 0;
    while (group < groups) {
      const Pair of_super = header<kFormat>(at, part);
      at += kFormat.header_bytes();
      for (int g = 0; g < kFormat.groups(); ++g, ++group, at += kGroupBytes) {
        if (part == 0) {
#pragma GCC unroll 9
          for (std::int64_t line = 0; line < (kGroupBytes + kLine - 1) / kLine; ++line) {
            hwy::Prefetch(at + kAhead + line * kLine);
          }
        }
        const std::uint8_t* const low = at + kFormat.scale_bytes() + 4 * kLanes * part;
        const auto scale = [&]<int kScale>() HWY_ATTR {
          constexpr int kSum = kSumOf<kFormat.shared, kScale>;
          QuadSums<1, kFormat.shared, kSafeQuads<kFormat> > sums([&](int) HWY_ATTR {
            return start_of<kFormat.offset>(x[group].negated_sums[kSum][0]);
          });
          for_quads<kFormat, kScale * kQuads>(
              low,
              [&]<int kQuad>(Byte number) HWY_ATTR {
                sums.template add<kQuad>(number,
                                         [&](int) HWY_ATTR { return quad(x[group], 0, kQuad); });
              },
              std::make_integer_sequence<int, kQuads>());
          const Pair pair = scales<kFormat, kScale>(of_super, at + kLanes * part);
          sum = scaled<kFormat.minima>(sums.whole(0), pair, x[group].scales[0],
                                       x[group].scaled_sums[kSum][0], sum);
        };
        scale.template operator()<0>();
        if constexpr (kFormat.scales_of_group() == 2) scale.template operator()<1>();
      }
    }
    if (column + kLanes * part < p.weights.out) store_sums(p, 0, column + kLanes * part, sum);
  }
}

/// Some groups of a strip, of whatever format, taken apart.
struct Decoded {
  static constexpr int most_groups = 8;
  HWY_ALIGN std::uint8_t kept[most_groups][quads_of_group][quad_bytes];
  HWY_ALIGN float scales[most_groups][2][strip_width];
  HWY_ALIGN float minima[most_groups][2][strip_width];
};

/// Groups [first, first + groups) of a strip; `first` is a multiple of most_groups.
template <PackedFormat kFormat>
HWY_NOINLINE void decode(const std::uint8_t* strip, int first, int groups, Decoded& to) {
  const std::uint8_t* at = strip + first / kFormat.groups() * kFormat.super_bytes();
  for (int group = 0; group < groups; at += kFormat.header_bytes()) {
    const std::uint8_t* const super = at;
    for (int g = 0; g < kFormat.groups(); ++g, ++group, at += kFormat.group_bytes()) {
#pragma GCC unroll 9
      for (std::int64_t line = 0; line < (kFormat.group_bytes() + kLine - 1) / kLine; ++line) {
        hwy::Prefetch(at + kAhead + line * kLine);
      }
      for (int part = 0; part < kParts; ++part) {
        for_quads<kFormat, 0>(
            at + kFormat.header_bytes() + kFormat.scale_bytes() + 4 * kLanes * part,
            [&]<int kQuad>(Byte number)
                HWY_ATTR { hn::Store(number, Bytes(), &to.kept[group][kQuad][4 * kLanes * part]); },
            std::make_integer_sequence<int, static_cast<int>(quads_of_group)>());
        const auto scale = [&]<int kScale>() HWY_ATTR {
          const Pair pair = scales<kFormat, kScale>(header<kFormat>(super, part),
                                                    at + kFormat.header_bytes() + kLanes * part);
          hn::Store(pair.scale, Floats(), &to.scales[group][kScale][kLanes * part]);
          hn::Store(pair.minimum, Floats(), &to.minima[group][kScale][kLanes * part]);
        };
        scale.template operator()<0>();
        if constexpr (kFormat.scales_of_group() == 2) scale.template operator()<1>();
      }
    }
  }
}

template <int... kQuads, class Use>
HWY_INLINE void count_quads(std::integer_sequence<int, kQuads...>, const Use& use) {
  (use.template operator()<kQuads>(), ...);
}

/// kRows rows times decoded groups, added to sums[row][strip_width]. The rows are row0 and those
/// behind it of a tile of kTileRows. kOffset 0: numbers have minima.
template <int kRows, int kTileRows, int kShared, int kOffset, int kSafe>
HWY_NOINLINE void tile(const Decoded& decoded, int groups, const std::byte* rows, int row0,
                       float* sums) {
  constexpr int kQuads = kShared / 4;
  const auto* const x = reinterpret_cast<const RowGroup<kTileRows>*>(rows);
  for (int part = 0; part < kParts; ++part) {
    Float sum[kRows];
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      sum[r] = hn::Load(Floats(), sums + r * strip_width + kLanes * part);
    }
#pragma GCC unroll 1
    for (int group = 0; group < groups; ++group) {
      const RowGroup<kTileRows>& of_rows = x[group];
      const auto scale = [&]<int kScale>() HWY_ATTR {
        constexpr int kSum = kSumOf<kShared, kScale>;
        QuadSums<kRows, kShared, kSafe> products([&](int r) HWY_ATTR {
          return start_of<kOffset>(of_rows.negated_sums[kSum][row0 + r]);
        });
        count_quads(std::make_integer_sequence<int, kQuads>(), [&]<int kIndex>() HWY_ATTR {
          constexpr int kQuad = kScale * kQuads + kIndex;
          const Byte number = hn::Load(Bytes(), &decoded.kept[group][kQuad][4 * kLanes * part]);
          products.template add<kQuad>(
              number, [&](int r) HWY_ATTR { return quad(of_rows, row0 + r, kQuad); });
        });
        const Pair pair{hn::Load(Floats(), &decoded.scales[group][kScale][kLanes * part]),
                        hn::Load(Floats(), &decoded.minima[group][kScale][kLanes * part])};
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) {
          sum[r] = scaled<kOffset == 0>(products.whole(r), pair, of_rows.scales[row0 + r],
                                        of_rows.scaled_sums[kSum][row0 + r], sum[r]);
        }
      };
      scale.template operator()<0>();
      if constexpr (kShared == 16) scale.template operator()<1>();
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      hn::Store(sum[r], Floats(), sums + r * strip_width + kLanes * part);
    }
  }
}

/// A whole tile of kRows rows, as many at a time as sums stay in registers.
template <int kRows, int kShared, int kOffset, int kSafe>
void whole_tile(const Decoded& decoded, int groups, const std::byte* rows, float* sums) {
  if constexpr (kRows <= kMostRows) {
    tile<kRows, kRows, kShared, kOffset, kSafe>(decoded, groups, rows, 0, sums);
  } else {
    tile<kMostRows, kRows, kShared, kOffset, kSafe>(decoded, groups, rows, 0, sums);
    tile<kRows - kMostRows, kRows, kShared, kOffset, kSafe>(decoded, groups, rows, kMostRows,
                                                            sums + kMostRows * strip_width);
  }
}

using Tile = void (*)(const Decoded&, int groups, const std::byte* rows, float* sums);

template <PackedFormat kFormat>
Tile tile_of(int rows) {
  constexpr int kShared = kFormat.shared, kOffset = kFormat.offset, kSafe = kSafeQuads<kFormat>;
  switch (rows) {
    case 1:
      return whole_tile<1, kShared, kOffset, kSafe>;
    case 2:
      return whole_tile<2, kShared, kOffset, kSafe>;
    case 3:
      return whole_tile<3, kShared, kOffset, kSafe>;
    case 4:
      return whole_tile<4, kShared, kOffset, kSafe>;
    case 5:
      return whole_tile<5, kShared, kOffset, kSafe>;
    case 6:
      return whole_tile<6, kShared, kOffset, kSafe>;
    case 7:
      return whole_tile<7, kShared, kOffset, kSafe>;
    default:
      return whole_tile<8, kShared, kOffset, kSafe>;
  }
}

/// What depends on the format.
struct Functions {
  PackedFormat format;
  void (*row_by_strip)(const LinearProduct&, const std::uint8_t* strip, std::int64_t column);
  void (*decode)(const std::uint8_t* strip, int first, int groups, Decoded&);
  Tile (*tile_of)(int rows);
};

template <WeightFormat kStored>
constexpr Functions functions() {
  constexpr PackedFormat kFormat = packed_format(kStored);
  return {kFormat, row_by_strip<kFormat>, decode<kFormat>, tile_of<kFormat>};
}

Functions functions_of(WeightFormat format) {
  switch (format) {
    case WeightFormat::q8_0:
      return functions<WeightFormat::q8_0>();
    case WeightFormat::q4_0:
      return functions<WeightFormat::q4_0>();
    case WeightFormat::q4_1:
      return functions<WeightFormat::q4_1>();
    case WeightFormat::q5_0:
      return functions<WeightFormat::q5_0>();
    case WeightFormat::q5_1:
      return functions<WeightFormat::q5_1>();
    case WeightFormat::q2_k:
      return functions<WeightFormat::q2_k>();
    case WeightFormat::q3_k:
      return functions<WeightFormat::q3_k>();
    case WeightFormat::q4_k:
      return functions<WeightFormat::q4_k>();
    case WeightFormat::q5_k:
      return functions<WeightFormat::q5_k>();
    case WeightFormat::q6_k:
      return functions<WeightFormat::q6_k>();
    case WeightFormat::iq4_nl:
      return functions<WeightFormat::iq4_nl>();
    case WeightFormat::iq4_xs:
      return functions<WeightFormat::iq4_xs>();
    case WeightFormat::int4:
      return functions<WeightFormat::int4>();
    case WeightFormat::fp8:  // linear_fp8.cc
    case WeightFormat::f32:
    case WeightFormat::f16:
    case WeightFormat::bf16:
      break;
  }
  return {};
}

/// Rows [first, first + count) times a strip; at most kMostCarriedRows.
void rows_by_strip(const LinearProduct& p, const Functions& f, const std::uint8_t* strip,
                   std::int64_t column, std::int32_t first, std::int32_t count) {
  HWY_ALIGN float sums[kMostCarriedRows * strip_width];
  std::fill_n(sums, count * strip_width, 0.0f);
  const auto groups = static_cast<int>(p.weights.in / group_inputs);
  Decoded decoded;
  for (int group = 0; group < groups; group += Decoded::most_groups) {
    const int some = std::min(Decoded::most_groups, groups - group);
    f.decode(strip, group, some, decoded);
    for (std::int32_t row = 0; row < count; row += QuantisedRows::most_tile_rows) {
      const std::int32_t rows = p.quantised->tile_rows(first + row);
      const std::byte* const x = p.quantised->tile(first + row) +
                                 group * rows * static_cast<std::int64_t>(sizeof(RowGroup<1>));
      f.tile_of(rows)(decoded, some, x, sums + row * strip_width);
    }
  }
  for (std::int32_t r = 0; r < count; ++r) {
    for (int part = 0; part < kParts && column + kLanes * part < p.weights.out; ++part) {
      store_sums(p, first + r, column + kLanes * part,
                 hn::Load(Floats(), sums + r * strip_width + kLanes * part));
    }
  }
}

void quantised_blocks(const LinearProduct& p, std::int64_t block_begin, std::int64_t block_end) {
  const Functions f = functions_of(p.weights.format);
  const std::int64_t bytes = strip_bytes(p.weights.format, p.weights.in);
  const std::int64_t strips = (p.weights.out + strip_width - 1) / strip_width;
  constexpr std::int64_t kStrips = block_width / strip_width;
  for (std::int64_t s = block_begin * kStrips; s < std::min(block_end * kStrips, strips); ++s) {
    const auto* const strip = p.weights.data.as<const std::uint8_t>() + s * bytes;
    if (p.rows == 1) {
      f.row_by_strip(p, strip, s * strip_width);
      continue;
    }
    for (std::int32_t first = 0; first < p.rows; first += kMostCarriedRows) {
      rows_by_strip(p, f, strip, s * strip_width, first,
                    std::min(kMostCarriedRows, p.rows - first));
    }
  }
}

/// Decoded groups as numbers: out[input][block_width], `strip_width` wide.
void expand(const Decoded& decoded, int groups, const PackedFormat& format, float* out) {
  for (int group = 0; group < groups; ++group) {
    for (int quad = 0; quad < quads_of_group; ++quad) {
      const int scale = 4 * quad / format.shared;
      for (int part = 0; part < kParts; ++part) {
        const auto scales = hn::Load(Floats(), &decoded.scales[group][scale][kLanes * part]);
        const auto minima = hn::Load(Floats(), &decoded.minima[group][scale][kLanes * part]);
        auto words =
            hn::BitCast(Words(), hn::Load(Bytes(), &decoded.kept[group][quad][4 * kLanes * part]));
        for (int i = 0; i < 4; ++i) {
          const auto whole = hn::Sub(hn::BitCast(Ints(), hn::And(words, hn::Set(Words(), 255))),
                                     hn::Set(Ints(), format.offset));
          auto value = hn::Mul(scales, hn::ConvertTo(Floats(), whole));
          if (format.minima) value = hn::Add(value, minima);
          hn::StoreU(value, Floats(),
                     out + (group * group_inputs + 4 * quad + i) * block_width + kLanes * part);
          words = hn::ShiftRight<8>(words);
        }
      }
    }
  }
}

void expand_any(const WeightBlocks& weights, std::int64_t block, std::int64_t begin,
                std::int64_t end, float* out) {
  const Functions f = functions_of(weights.format);
  const std::int64_t bytes = strip_bytes(weights.format, weights.in);
  Decoded decoded;
  for (std::int64_t s = 0; s < block_width / strip_width; ++s) {
    const auto* const strip =
        weights.data.as<const std::uint8_t>() + block * weights.block_bytes() + s * bytes;
    for (std::int64_t group = begin / group_inputs; group < end / group_inputs;
         group += Decoded::most_groups) {
      const auto some = static_cast<int>(
          std::min<std::int64_t>(Decoded::most_groups, end / group_inputs - group));
      f.decode(strip, static_cast<int>(group), some, decoded);
      expand(decoded, some, f.format,
             out + (group * group_inputs - begin) * block_width + s * strip_width);
    }
  }
}

#endif  // HWY_TARGET == HWY_SCALAR

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(quantised_blocks);
HWY_EXPORT(expand_any);

void multiply_quantised(const LinearProduct& product, std::int64_t block_begin,
                        std::int64_t block_end) {
  HWY_DYNAMIC_DISPATCH(quantised_blocks)(product, block_begin, block_end);
}

void expand_block(const WeightBlocks& weights, std::int64_t block, std::int64_t begin,
                  std::int64_t end, float* out) {
  if (weights.format == WeightFormat::fp8) return expand_fp8(weights, block, begin, end, out);
  HWY_DYNAMIC_DISPATCH(expand_any)(weights, block, begin, end, out);
}

}  // namespace coppice::cpu
#endif
