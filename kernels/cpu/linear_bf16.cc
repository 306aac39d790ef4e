#include <cstring>

#include "kernels/cpu/weight_blocks.h"

// Highway 1.0 has no target with AVX-512 BF16, hence intrinsics.
#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>

#define COPPICE_BF16 __attribute__((target("avx512f,avx512bw,avx512vl,avx512bf16")))

namespace coppice::cpu {
namespace {

constexpr int kVectors = block_width / 16;

COPPICE_BF16 inline __attribute__((always_inline)) __m512bh bits_of(__m512i v) {
  return reinterpret_cast<__m512bh>(v);
}

/// Two neighbouring activations in every lane.
COPPICE_BF16 inline __attribute__((always_inline)) __m512bh broadcast_pair(const std::uint16_t* x) {
  int pair;
  std::memcpy(&pair, x, sizeof pair);
  return bits_of(_mm512_set1_epi32(pair));
}

/// kRows rows times one block. kChains independent sums hide the latency of the multiply-add
/// where there are few rows.
template <int kRows, int kChains>
COPPICE_BF16 void block_rows(const std::uint16_t* w, const LinearProduct& p, std::int64_t row,
                             std::int64_t column) {
  const std::int64_t in = p.weights.in, out = p.weights.out;
  const auto* x = static_cast<const std::uint16_t*>(p.x) + row * in;
  __m512 sum[kChains][kRows][kVectors];
#pragma GCC unroll 2
  for (int c = 0; c < kChains; ++c) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[c][r][v] = _mm512_setzero_ps();
    }
  }
  const std::int64_t pairs = in / 2;
  std::int64_t i = 0;
  for (; i + kChains <= pairs; i += kChains) {
    // Weights come once: ask for them well ahead of the hardware's own prefetch.
#pragma GCC unroll 8
    for (int line = 0; line < kChains * kVectors; ++line) {
      _mm_prefetch(reinterpret_cast<const char*>(w) + 2048 + 64 * line, _MM_HINT_T0);
    }
#pragma GCC unroll 2
    for (int c = 0; c < kChains; ++c) {
      __m512bh weight[kVectors];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        weight[v] = bits_of(_mm512_loadu_si512(w + 32 * (c * kVectors + v)));
      }
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const __m512bh pair = broadcast_pair(x + r * in + 2 * (i + c));
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          sum[c][r][v] = _mm512_dpbf16_ps(sum[c][r][v], weight[v], pair);
        }
      }
    }
    w += 2 * block_width * kChains;
  }
  for (; 2 * i < in; ++i, w += 2 * block_width) {
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const std::uint16_t* at = x + r * in + 2 * i;
      const __m512bh pair = 2 * i + 1 < in ? broadcast_pair(at) : bits_of(_mm512_set1_epi32(*at));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        sum[0][r][v] =
            _mm512_dpbf16_ps(sum[0][r][v], bits_of(_mm512_loadu_si512(w + 32 * v)), pair);
      }
    }
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t first = column + 16 * v;
    if (first >= out) break;
    const auto mask = static_cast<__mmask16>(out - first >= 16 ? 0xffff : (1 << (out - first)) - 1);
    const __m512 bias =
        p.bias != nullptr ? _mm512_maskz_loadu_ps(mask, p.bias + first) : _mm512_setzero_ps();
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      float* y = p.y + (row + r) * p.stride + first;
      __m512 total = sum[0][r][v];
      if constexpr (kChains == 2) total = _mm512_add_ps(total, sum[kChains - 1][r][v]);
      total = _mm512_add_ps(total, bias);
      if (p.accumulate) total = _mm512_add_ps(total, _mm512_maskz_loadu_ps(mask, y));
      _mm512_mask_storeu_ps(y, mask, total);
    }
  }
}

}  // namespace

void multiply_bf16(const LinearProduct& p, std::int64_t block_begin, std::int64_t block_end) {
  constexpr std::int32_t most = 6;  // rows x 4 sums, 4 weights and a broadcast fill 32 registers
  const std::int64_t block_elements = WeightBlocks::elements(DType::bf16, p.weights.in);
  const std::int32_t groups = (p.rows + most - 1) / most;
  for (std::int64_t b = block_begin; b < block_end; ++b) {
    const auto* w = p.weights.data.as<const std::uint16_t>() + b * block_elements;
    for (std::int32_t g = 0; g < groups; ++g) {
      const std::int32_t row = p.rows * g / groups;
      switch (p.rows * (g + 1) / groups - row) {
        case 1:
          block_rows<1, 2>(w, p, row, b * block_width);
          break;
        case 2:
          block_rows<2, 2>(w, p, row, b * block_width);
          break;
        case 3:
          block_rows<3, 1>(w, p, row, b * block_width);
          break;
        case 4:
          block_rows<4, 1>(w, p, row, b * block_width);
          break;
        case 5:
          block_rows<5, 1>(w, p, row, b * block_width);
          break;
        default:
          block_rows<6, 1>(w, p, row, b * block_width);
          break;
      }
    }
  }
}

}  // namespace coppice::cpu

#else

namespace coppice::cpu {
void multiply_bf16(const LinearProduct&, std::int64_t, std::int64_t) {}
}  // namespace coppice::cpu

#endif
