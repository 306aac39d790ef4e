// Weighted sums of a block's values; included once per Highway target.
#if defined(COPPICE_KERNELS_CPU_ATTENTION_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_ATTENTION_VALUES_INL_H_
#undef COPPICE_KERNELS_CPU_ATTENTION_VALUES_INL_H_
#else
#define COPPICE_KERNELS_CPU_ATTENTION_VALUES_INL_H_
#endif

#include "kernels/cpu/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

/// out[r] = out[r] * rescale[r] + sum_t p(t, r) v_t for kRows rows and kVectors vectors of
/// head elements; p(t, r) = weights[t * token_stride + r * row_stride].
template <DType kType, int kRows, int kVectors>
HWY_INLINE void add_values(const float* weights, std::int64_t token_stride, std::int64_t row_stride,
                           TokenRows<kType> values, std::int32_t tokens, const Ahead& ahead,
                           bool first, const float* rescale, std::int64_t dim, float* out) {
  const Floats d;
  Vec sum[kRows][kVectors];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    const Vec factor = hn::Set(d, rescale[r]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = first ? hn::Zero(d) : hn::Mul(factor, hn::LoadU(d, out + r * dim + v * kLanes));
    }
  }
  for (std::int32_t t = 0; t < tokens; ++t) {
    ahead.ask(t, 1);
    const Stored<kType>* value = values.first + values.offset[t];
    const float* weight = weights + t * token_stride;
    if constexpr (kRows <= kVectors) {
      Vec p[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) p[r] = hn::Set(d, weight[r * row_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Vec x = load_as<kType>(d, value + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sum[r][v] = hn::MulAdd(p[r], x, sum[r][v]);
      }
    } else {
      Vec x[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) x[v] = load_as<kType>(d, value + v * kLanes);
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        const Vec p = hn::Set(d, weight[r * row_stride]);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(p, x[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, out + r * dim + v * kLanes);
  }
}

template <DType kType, int kRows>
HWY_NOINLINE void add_values_rows(const Tile& tile, TokenRows<kType> values, std::int32_t tokens,
                                  const Ahead& ahead, const Scratch& s, std::int32_t row,
                                  std::int64_t token_stride, std::int64_t row_stride, bool first) {
  const float* weights = s.scores + row * row_stride;
  float* out = s.out + row * tile.dim;
  std::int64_t column = 0;
  const auto strip = [&]<int kVectors>() HWY_ATTR {
    for (; column + kVectors * kLanes <= tile.dim; column += kVectors * kLanes) {
      add_values<kType, kRows, kVectors>(weights, token_stride, row_stride,
                                         {values.first + column, values.offset}, tokens,
                                         row == 0 && column == 0 ? ahead : Ahead(), first,
                                         s.rescale + row, tile.dim, out + column);
    }
  };
  if constexpr (kManyRegisters && kRows <= 2) strip.template operator()<8>();
  if constexpr (kManyRegisters || kRows <= 2) strip.template operator()<4>();
  strip.template operator()<2>();
  strip.template operator()<1>();
}

template <DType kType>
void add_block_values(const Tile& tile, TokenRows<kType> values, std::int32_t tokens,
                      const Ahead& ahead, const Scratch& s, std::int64_t token_stride,
                      std::int64_t row_stride, bool first) {
  std::int32_t row = 0;
  for (; row + 4 <= tile.rows; row += 4) {
    add_values_rows<kType, 4>(tile, values, tokens, ahead, s, row, token_stride, row_stride, first);
  }
  if (row + 2 <= tile.rows) {
    add_values_rows<kType, 2>(tile, values, tokens, ahead, s, row, token_stride, row_stride, first);
    row += 2;
  }
  if (row < tile.rows)
    add_values_rows<kType, 1>(tile, values, tokens, ahead, s, row, token_stride, row_stride, first);
}
inline void add_block_values_plain(const Tile& tile, TokenRows<DType::f32> values,
                                   std::int32_t tokens, const Scratch& s, bool first) {
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    float* out = s.out + row * tile.dim;
    for (std::int64_t i = 0; i < tile.dim; ++i) out[i] = first ? 0 : out[i] * s.rescale[row];
    for (std::int32_t t = 0; t < tokens; ++t) {
      const float* value = values.first + values.offset[t];
      const float weight = s.scores[row * attention_block + t];
      for (std::int64_t i = 0; i < tile.dim; ++i) out[i] += weight * value[i];
    }
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
