// Products in f32 with weights of fp8 (packed_format.h), whose numbers become f32 in registers: a
// few rows' sums stay there while the weights pass by once. More rows multiply weights that were
// dequantised once for all of them (linear_f32.cc), to the same bits.
#include <algorithm>
#include <cstdint>

#include "kernels/cpu/weight_blocks.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/linear_fp8.cc"
#include "hwy/cache_control.h"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
#include "kernels/cpu/store_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Lanes = hn::CappedTag<float, 16>;
using Words = hn::RebindToUnsigned<Lanes>;
using Vector = hn::Vec<Lanes>;
constexpr int kLanes = hn::MaxLanes(Lanes());
constexpr bool kManyRegisters = HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM;  ///< 32, else 16
constexpr std::int64_t kAhead = 12 << 10;
constexpr PackedFormat kFormat = packed_format(WeightFormat::fp8);
constexpr int kQuads = static_cast<int>(kFormat.super_inputs()) / 4;

/// Numbers kInput of a quad, exactly. Their bits go where an f32 has its own; the exponent's bias
/// is 120 more there. To multiply what is subnormal there takes processors a hundred times as long,
/// to add does not: so 2^-106 is added, which is exact, and taken off as they are multiplied.
template <int kInput>
HWY_INLINE Vector numbers_of(hn::Vec<Words> quad) {
  const hn::RebindToSigned<Lanes> whole;
  const auto top = hn::BitCast(whole, hn::ShiftLeft<24 - 8 * kInput>(quad));
  const auto bits =
      hn::And(hn::BitCast(Words(), hn::ShiftRight<4>(top)), hn::Set(Words(), 0x87f00000u));
  const auto shifted = hn::Add(hn::BitCast(Lanes(), bits), hn::Set(Lanes(), 0x1p-106f));
  return hn::MulAdd(shifted, hn::Set(Lanes(), 0x1p120f), hn::Set(Lanes(), -0x1p14f));
}

/// use<kInput>(numbers)
template <class Use>
HWY_INLINE void for_inputs(hn::Vec<Words> quad, const Use& use) {
  use.template operator()<0>(numbers_of<0>(quad));
  use.template operator()<1>(numbers_of<1>(quad));
  use.template operator()<2>(numbers_of<2>(quad));
  use.template operator()<3>(numbers_of<3>(quad));
}

HWY_INLINE hn::Vec<Words> quad_at(const std::byte* at) {
  return hn::LoadU(Words(), reinterpret_cast<const std::uint32_t*>(at));
}
HWY_INLINE Vector scales_at(const std::byte* at) {
  return hn::LoadU(Lanes(), reinterpret_cast<const float*>(at));
}

/// Rows [row, row + kRows) times kVectors vectors of outputs, from `column` of the block on.
template <int kRows, int kVectors>
HWY_NOINLINE void tile(const LinearProduct& p, std::int64_t row, std::int64_t block,
                       std::int64_t column) {
  const std::int64_t in = p.weights.in, bytes = strip_bytes(WeightFormat::fp8, in);
  const std::byte* at[kVectors];
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t output = column + v * kLanes;
    at[v] = p.weights.data.as<const std::byte>() + block * p.weights.block_bytes() +
            output / strip_width * bytes + output % strip_width * 4;
  }
  const float* x = static_cast<const float*>(p.x) + row * in;
  Vector sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::Zero(Lanes());
  }
  for (std::int64_t i = 0; i < in; i += kFormat.super_inputs()) {
    Vector scales[kVectors];
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      scales[v] = scales_at(at[v]);
      at[v] += kFormat.header_bytes();
    }
#pragma GCC unroll 1
    for (int quad = 0; quad < kQuads; ++quad, x += 4) {
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        if (v * kLanes % strip_width == 0) hwy::Prefetch(at[v] + kAhead);
        const auto four = quad_at(at[v]);
        at[v] += quad_bytes;
        for_inputs(four, [&]<int kInput>(Vector numbers) HWY_ATTR {
          const Vector weights = hn::Mul(numbers, scales[v]);
#pragma GCC unroll 8
          for (int r = 0; r < kRows; ++r) {
            sum[r][v] = hn::MulAdd(hn::Set(Lanes(), x[r * in + kInput]), weights, sum[r][v]);
          }
        });
      }
    }
  }
  const std::int64_t first = block * block_width + column;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) store_sums(p, row + r, first + v * kLanes, sum[r][v]);
  }
}

/// All columns of blocks.
template <int kRows>
void rows_by_blocks(const LinearProduct& p, std::int64_t begin, std::int64_t end) {
  constexpr int kVectors = kManyRegisters || kRows <= 2 ? 4 : 2;
  for (std::int64_t block = begin; block < end; ++block) {
    const std::int64_t columns = std::min(block_width, p.weights.out - block * block_width);
    for (std::int64_t column = 0; column < columns; column += kVectors * kLanes) {
      tile<kRows, kVectors>(p, 0, block, column);
    }
  }
}

void fp8_blocks(const LinearProduct& p, std::int64_t begin, std::int64_t end) {
  static_assert(most_fp8_rows == 6);
  switch (p.rows) {
    case 1:
      return rows_by_blocks<1>(p, begin, end);
    case 2:
      return rows_by_blocks<2>(p, begin, end);
    case 3:
      return rows_by_blocks<3>(p, begin, end);
    case 4:
      return rows_by_blocks<4>(p, begin, end);
    case 5:
      return rows_by_blocks<5>(p, begin, end);
    default:
      return rows_by_blocks<6>(p, begin, end);
  }
}

void expand_fp8_block(const WeightBlocks& weights, std::int64_t block, std::int64_t begin,
                      std::int64_t end, float* out) {
  const std::int64_t bytes = strip_bytes(WeightFormat::fp8, weights.in);
  for (std::int64_t column = 0; column < block_width; column += kLanes) {
    const std::byte* at = weights.data.as<const std::byte>() + block * weights.block_bytes() +
                          column / strip_width * bytes + column % strip_width * 4 +
                          begin / kFormat.super_inputs() * kFormat.super_bytes();
    float* to = out + column;
    for (std::int64_t i = begin; i < end; i += kFormat.super_inputs()) {
      const Vector scales = scales_at(at);
      at += kFormat.header_bytes();
      for (int quad = 0; quad < kQuads; ++quad, at += quad_bytes, to += 4 * block_width) {
        hwy::Prefetch(at + kAhead);
        for_inputs(quad_at(at), [&]<int kInput>(Vector numbers) HWY_ATTR {
          hn::StoreU(hn::Mul(numbers, scales), Lanes(), to + kInput * block_width);
        });
      }
    }
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(fp8_blocks);
HWY_EXPORT(expand_fp8_block);

void multiply_fp8(const LinearProduct& product, std::int64_t block_begin, std::int64_t block_end) {
  HWY_DYNAMIC_DISPATCH(fp8_blocks)(product, block_begin, block_end);
}

void expand_fp8(const WeightBlocks& weights, std::int64_t block, std::int64_t begin,
                std::int64_t end, float* out) {
  HWY_DYNAMIC_DISPATCH(expand_fp8_block)(weights, block, begin, end, out);
}

}  // namespace coppice::cpu
#endif
