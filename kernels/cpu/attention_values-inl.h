// Weighted sums of a chunk's values; included once per Highway target.
#if defined(COPPICE_KERNELS_CPU_ATTENTION_VALUES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_ATTENTION_VALUES_INL_H_
#undef COPPICE_KERNELS_CPU_ATTENTION_VALUES_INL_H_
#else
#define COPPICE_KERNELS_CPU_ATTENTION_VALUES_INL_H_
#endif

#include "kernels/cpu/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

/// out[r] += sum_t p(t, r) v_t for kRows rows and kVectors vectors of head elements, token after
/// token, from 0 if `first`; p(t, r) = weights[t * token_stride + r * row_stride]. kWeights: their
/// sums, too, to weight_sums[r].
template <DType kType, int kRows, int kVectors, bool kWeights>
HWY_INLINE void add_values(const float* weights, std::int64_t token_stride, std::int64_t row_stride,
                           TokenRows<kType> values, std::int32_t tokens, const Ahead& ahead,
                           bool first, std::int64_t dim, float* out, float* weight_sums) {
  const Floats d;
  Vec sum[kRows][kVectors];
  Vec weight_sum[kRows];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    weight_sum[r] = hn::Zero(d);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sum[r][v] = first ? hn::Zero(d) : hn::LoadU(d, out + r * dim + v * kLanes);
    }
  }
  for (std::int32_t t = 0; t < tokens; ++t) {
    ahead.ask(t, 1);
    const Stored<kType>* value = values.first + values.offset[t];
    const float* weight = weights + t * token_stride;
    if constexpr (kRows <= kVectors) {
      Vec p[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) {
        p[r] = hn::Set(d, weight[r * row_stride]);
        if constexpr (kWeights) weight_sum[r] = hn::Add(weight_sum[r], p[r]);
      }
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
        if constexpr (kWeights) weight_sum[r] = hn::Add(weight_sum[r], p);
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) sum[r][v] = hn::MulAdd(p, x[v], sum[r][v]);
      }
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    if constexpr (kWeights) weight_sums[r] = hn::GetLane(weight_sum[r]);
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) hn::StoreU(sum[r][v], d, out + r * dim + v * kLanes);
  }
}

/// kWeights: of a narrow tile, whose weights lie as [row][stride]; else of a wide one,
/// [token][row].
template <DType kType, int kRows, bool kWeights>
HWY_NOINLINE void add_values_rows(const Tile& tile, const float* weights, std::int64_t token_stride,
                                  TokenRows<kType> values, std::int32_t tokens, const Ahead& ahead,
                                  const Scratch& s, std::int32_t row, bool first, float* out) {
  const std::int64_t row_stride = kWeights ? s.stride : 1;
  weights += row * row_stride;
  out += row * tile.dim;
  std::int64_t column = 0;
  const auto strip = [&]<int kVectors>() HWY_ATTR {
    for (; column + kVectors * kLanes <= tile.dim; column += kVectors * kLanes) {
      const TokenRows<kType> rows{values.first + column, values.offset};
      if (column > 0) {
        add_values<kType, kRows, kVectors, false>(weights, token_stride, row_stride, rows, tokens,
                                                  Ahead(), first, tile.dim, out + column, nullptr);
      } else {
        add_values<kType, kRows, kVectors, kWeights>(weights, token_stride, row_stride, rows,
                                                     tokens, row == 0 ? ahead : Ahead(), first,
                                                     tile.dim, out, s.part_sum + row);
      }
    }
  };
  if constexpr (kManyRegisters && kRows <= 2) strip.template operator()<8>();
  if constexpr (kManyRegisters || kRows <= 2) strip.template operator()<4>();
  strip.template operator()<2>();
  strip.template operator()<1>();
}

template <DType kType, bool kWeights>
void add_some_values(const Tile& tile, const float* weights, std::int64_t token_stride,
                     TokenRows<kType> values, std::int32_t tokens, const Ahead& ahead,
                     const Scratch& s, bool first, float* out) {
  std::int32_t row = 0;
  const auto add = [&]<int kRows>() HWY_ATTR {
    add_values_rows<kType, kRows, kWeights>(tile, weights, token_stride, values, tokens, ahead, s,
                                            row, first, out);
    row += kRows;
  };
  while (row + 4 <= tile.rows) add.template operator()<4>();
  if (row + 2 <= tile.rows) add.template operator()<2>();
  if (row < tile.rows) add.template operator()<1>();
}

/// out[row] = sum_t p(t, row) v_t over a piece; of a narrow tile the sums of the weights, too.
template <DType kType>
void add_piece_values(const Tile& tile, TokenRows<kType> values, const Piece& piece,
                      const Ahead& ahead, const Scratch& s, std::int32_t padded_rows, bool narrow,
                      float* out) {
  if (narrow) {
    add_some_values<kType, true>(tile, s.scores, 1, values, piece.tokens, ahead, s, true, out);
  } else if constexpr (kType == DType::f32) {
    add_some_values<kType, false>(tile, s.scores, padded_rows, values, piece.tokens, ahead, s, true,
                                  out);
  } else {
    for (std::int32_t begin = 0; begin < piece.tokens; begin += attention_widened) {
      const std::int32_t end = std::min(begin + attention_widened, piece.tokens);
      add_some_values<DType::f32, false>(tile, s.scores + begin * padded_rows, padded_rows,
                                         widened(values, begin, end, tile.dim, ahead, s),
                                         end - begin, {}, s, begin == 0, out);
    }
  }
}

template <DType kType>
void add_piece_values_plain(const Tile& tile, TokenRows<kType> values, const Piece& piece,
                            const Ahead& ahead, const Scratch& s, float* out) {
  std::fill_n(out, tile.rows * tile.dim, 0.0f);
  std::fill_n(s.part_sum, tile.rows, 0.0f);
  for (std::int32_t begin = 0; begin < piece.tokens; begin += attention_widened) {
    const std::int32_t end = std::min(begin + attention_widened, piece.tokens);
    const TokenRows<DType::f32> wide = widened(values, begin, end, tile.dim, ahead, s);
    for (std::int32_t row = 0; row < tile.rows; ++row) {
      float* sums = out + row * tile.dim;
      for (std::int32_t t = begin; t < end; ++t) {
        const float* value = wide.first + wide.offset[t - begin];
        const float weight = s.scores[row * s.stride + t];
        s.part_sum[row] += weight;
        for (std::int64_t i = 0; i < tile.dim; ++i) sums[i] += weight * value[i];
      }
    }
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
