// Scores of a block of tokens and their softmax; included once per Highway target.
#if defined(COPPICE_KERNELS_CPU_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#undef COPPICE_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#else
#define COPPICE_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention_block-inl.h"

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

// --- wide tiles -----------------------------------------------------------------------------

/// queries[i][row] = q[row][i] * factor for whole vectors of rows; rows past the tile's
/// repeat its last one.
inline void transpose_queries(const Tile& tile, std::int32_t padded_rows, float factor,
                              float* queries) {
#if HWY_TARGET == HWY_SCALAR
  for (std::int32_t row = 0; row < padded_rows; ++row) {
    const float* q = tile.q_row(std::min(row, tile.rows - 1));
    for (std::int64_t i = 0; i < tile.dim; ++i) queries[i * padded_rows + row] = q[i] * factor;
  }
#else
  const hn::FixedTag<float, 4> d;
  const auto factors = hn::Set(d, factor);
  for (std::int32_t row = 0; row < padded_rows; row += 4) {
    const float* q[4];
    for (std::int32_t i = 0; i < 4; ++i) q[i] = tile.q_row(std::min(row + i, tile.rows - 1));
    for (std::int64_t i = 0; i < tile.dim; i += 4) {
      const auto a = hn::Mul(hn::LoadU(d, q[0] + i), factors);
      const auto b = hn::Mul(hn::LoadU(d, q[1] + i), factors);
      const auto c = hn::Mul(hn::LoadU(d, q[2] + i), factors);
      const auto e = hn::Mul(hn::LoadU(d, q[3] + i), factors);
      const auto ac_low = hn::InterleaveLower(d, a, c), ac_high = hn::InterleaveUpper(d, a, c);
      const auto be_low = hn::InterleaveLower(d, b, e), be_high = hn::InterleaveUpper(d, b, e);
      float* to = queries + i * padded_rows + row;
      hn::StoreU(hn::InterleaveLower(d, ac_low, be_low), d, to);
      hn::StoreU(hn::InterleaveUpper(d, ac_low, be_low), d, to + padded_rows);
      hn::StoreU(hn::InterleaveLower(d, ac_high, be_high), d, to + 2 * padded_rows);
      hn::StoreU(hn::InterleaveUpper(d, ac_high, be_high), d, to + 3 * padded_rows);
    }
  }
#endif
}

/// scores[token][row] for kTokens tokens.
template <int kVectors, int kTokens>
HWY_INLINE void score_tokens(const float* queries, const float* keys, const std::int64_t* offset,
                             std::int64_t dim, float* scores) {
  const Floats d;
  const float* key[kTokens];
  Vec sum[kTokens][kVectors];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
    key[t] = keys + offset[t];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sum[t][v] = hn::Zero(d);
  }
  for (std::int64_t i = 0; i < dim; ++i) {
    Vec q[kVectors];
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) q[v] = hn::LoadU(d, queries + v * kLanes);
    queries += kVectors * kLanes;
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
      const Vec k = hn::Set(d, key[t][i]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[t][v] = hn::MulAdd(k, q[v], sum[t][v]);
    }
  }
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sum[t][v], d, scores + (t * kVectors + v) * kLanes);
    }
  }
}

/// Scores are to base 2.
HWY_INLINE void cap_scores(const Tile& tile, float* scores, std::int32_t count) {
  const Floats d;
  const float cap = tile.call->rule.soft_cap * kLog2E;
  for (std::int32_t i = 0; i < count; i += kLanes) {
    hn::StoreU(soft_capped(d, hn::LoadU(d, scores + i), cap), d, scores + i);
  }
}

template <int kVectors>
HWY_INLINE void soften_wide(const Tile& tile, const Block& block, const Scratch& s) {
  const Floats d;
  constexpr std::int32_t stride = kVectors * kLanes;
  if (tile.call->rule.soft_cap > 0) cap_scores(tile, s.scores, block.tokens * stride);
  if (block.masked) {
    const auto lane = hn::Iota(d, 0);
    const auto hidden = hn::Set(d, kMinusInfinity);
    for (std::int32_t t = 0; t < block.tokens; ++t) {
      const auto begin = hn::Set(d, static_cast<float>(block.row_begin[t]));
      const auto end = hn::Set(d, static_cast<float>(block.row_end[t]));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const auto row = hn::Add(lane, hn::Set(d, static_cast<float>(v * kLanes)));
        float* at = s.scores + t * stride + v * kLanes;
        const auto sees = hn::And(hn::Ge(row, begin), hn::Lt(row, end));
        hn::StoreU(hn::IfThenElse(sees, hn::LoadU(d, at), hidden), d, at);
      }
    }
  }
  if (block.windowed) {
    const auto hidden = hn::Set(d, kMinusInfinity);
    for (std::int32_t t = 0; t < block.tokens; ++t) {
      const auto end = hn::Set(d, block.behind_end[t]);
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        float* at = s.scores + t * stride + v * kLanes;
        const auto sees = hn::Lt(hn::LoadU(d, s.behind + v * kLanes), end);
        hn::StoreU(hn::IfThenElse(sees, hn::LoadU(d, at), hidden), d, at);
      }
    }
  }
  for (int v = 0; v < kVectors; ++v) {
    float* scores = s.scores + v * kLanes;
    const Vec before = hn::LoadU(d, s.maximum + v * kLanes);
    Vec maximum = before;
    for (std::int32_t t = 0; t < block.tokens; ++t) {
      maximum = hn::Max(maximum, hn::LoadU(d, scores + t * stride));
    }
    // A row that has seen nothing yet: subtract 0, so that its weights are 0, not NaN.
    const auto blind = hn::Eq(maximum, hn::Set(d, kMinusInfinity));
    const Vec base = hn::IfThenZeroElse(blind, maximum);
    const Vec rescale = exp2_nonpositive(d, hn::Sub(before, base));
    Vec sum = hn::Mul(hn::LoadU(d, s.sum + v * kLanes), rescale);
    for (std::int32_t t = 0; t < block.tokens; ++t) {
      const Vec p = exp2_nonpositive(d, hn::Sub(hn::LoadU(d, scores + t * stride), base));
      sum = hn::Add(sum, p);
      hn::StoreU(p, d, scores + t * stride);
    }
    hn::StoreU(maximum, d, s.maximum + v * kLanes);
    hn::StoreU(sum, d, s.sum + v * kLanes);
    hn::StoreU(rescale, d, s.rescale + v * kLanes);
  }
}

template <int kVectors>
HWY_NOINLINE void score_wide(const Tile& tile, TokenRows<DType::f32> keys, const Ahead& ahead,
                             const Block& block, const Scratch& s) {
  constexpr int kTokens = kManyRegisters ? (kVectors <= 2 ? 8 : 4) : (kVectors == 1 ? 8 : 4);
  for (std::int32_t t = 0; t < block.tokens; t += kTokens) {
    ahead.ask(t, kTokens);
    score_tokens<kVectors, kTokens>(s.queries, keys.first, keys.offset + t, tile.dim,
                                    s.scores + t * kVectors * kLanes);
  }
  soften_wide<kVectors>(tile, block, s);
}

inline void score_wide_rows(std::int32_t vectors, const Tile& tile, TokenRows<DType::f32> keys,
                            const Ahead& ahead, const Block& block, const Scratch& s) {
  switch (vectors) {
    case 1:
      return score_wide<1>(tile, keys, ahead, block, s);
    case 2:
      return score_wide<2>(tile, keys, ahead, block, s);
    case 3:
      if constexpr (kMostVectors >= 3) score_wide<3>(tile, keys, ahead, block, s);
      return;
    default:
      if constexpr (kMostVectors >= 4) score_wide<4>(tile, keys, ahead, block, s);
  }
}
// --- narrow tiles ---------------------------------------------------------------------------

/// Lane i of the result is the sum of all lanes of sums[i].
HWY_INLINE Vec transposed_sum(Vec (&sums)[kLanes]) {
#if HWY_TARGET != HWY_SCALAR
  const Floats d;
#pragma GCC unroll 8
  for (int width = kLanes / 2; width > 0; width /= 2) {
#pragma GCC unroll 8
    for (int i = 0; i < width; ++i) {
      const Vec a = sums[2 * i], b = sums[2 * i + 1];
      sums[i] = hn::Add(hn::ConcatEven(d, b, a), hn::ConcatOdd(d, b, a));
    }
  }
#endif
  return sums[0];
}

/// scores[row][token] of kRows rows.
template <DType kType, int kRows>
HWY_NOINLINE void score_narrow(const Tile& tile, TokenRows<kType> keys, const Ahead& ahead,
                               const Block& block, const Scratch& s, std::int32_t row) {
  const Floats d;
  constexpr int kTokens = kLanes / kRows;
  const float* queries = s.queries + row * tile.dim;
  HWY_ALIGN float lanes[kLanes];
  for (std::int32_t t = 0; t < block.tokens; t += kTokens) {
    if (row == 0) ahead.ask(t, kTokens);
    Vec sum[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) sum[i] = hn::Zero(d);
    for (std::int64_t i = 0; i < tile.dim; i += kLanes) {
      Vec q[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) q[r] = hn::LoadU(d, queries + r * tile.dim + i);
#pragma GCC unroll 16
      for (int j = 0; j < kTokens; ++j) {
        const Vec k = load_as<kType>(d, keys.first + keys.offset[t + j] + i);
#pragma GCC unroll 4
        for (int r = 0; r < kRows; ++r) {
          sum[r * kTokens + j] = hn::MulAdd(q[r], k, sum[r * kTokens + j]);
        }
      }
    }
    hn::Store(transposed_sum(sum), d, lanes);
#pragma GCC unroll 4
    for (int r = 0; r < kRows; ++r) {
      std::memcpy(s.scores + (row + r) * attention_block + t, lanes + r * kTokens,
                  kTokens * sizeof(float));
    }
  }
}

inline void soften_narrow(const Tile& tile, const Block& block, const Scratch& s) {
  const Floats d;
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    float* scores = s.scores + row * attention_block;
    std::int32_t end = block.tokens;
    if (tile.call->rule.soft_cap > 0) {
      cap_scores(tile, scores, (end + kLanes - 1) / kLanes * kLanes);
    }
    if (block.masked) {
      for (std::int32_t t = 0; t < block.tokens; ++t) {
        if (row < block.row_begin[t] || row >= block.row_end[t]) scores[t] = kMinusInfinity;
      }
    }
    if (block.windowed) {
      for (std::int32_t t = 0; t < block.tokens; ++t) {
        if (s.behind[row] >= block.behind_end[t]) scores[t] = kMinusInfinity;
      }
    }
    for (; end % kLanes != 0; ++end) scores[end] = kMinusInfinity;
    Vec maxima = hn::LoadU(d, scores);
    for (std::int32_t t = kLanes; t < end; t += kLanes) {
      maxima = hn::Max(maxima, hn::LoadU(d, scores + t));
    }
    const float before = s.maximum[row];
    const float maximum = std::max(before, hn::GetLane(hn::MaxOfLanes(d, maxima)));
    const Vec base = hn::Set(d, maximum == kMinusInfinity ? 0.0f : maximum);
    const float rescale = hn::GetLane(exp2_nonpositive(d, hn::Sub(hn::Set(d, before), base)));
    Vec sums = hn::Zero(d);
    for (std::int32_t t = 0; t < end; t += kLanes) {
      const Vec p = exp2_nonpositive(d, hn::Sub(hn::LoadU(d, scores + t), base));
      sums = hn::Add(sums, p);
      hn::StoreU(p, d, scores + t);
    }
    s.maximum[row] = maximum;
    s.sum[row] = s.sum[row] * rescale + hn::GetLane(hn::SumOfLanes(d, sums));
    s.rescale[row] = rescale;
  }
}

template <DType kType>
void score_narrow_rows(const Tile& tile, TokenRows<kType> keys, const Ahead& ahead,
                       const Block& block, const Scratch& s) {
  std::int32_t row = 0;
  if constexpr (kLanes >= 4) {
    for (; row + 4 <= tile.rows; row += 4) score_narrow<kType, 4>(tile, keys, ahead, block, s, row);
  }
  if constexpr (kLanes >= 2) {
    for (; row + 2 <= tile.rows; row += 2) score_narrow<kType, 2>(tile, keys, ahead, block, s, row);
  }
  for (; row < tile.rows; ++row) score_narrow<kType, 1>(tile, keys, ahead, block, s, row);
  soften_narrow(tile, block, s);
}
// --- heads of any size --------------------------------------------------------------------------

inline void score_plain(const Tile& tile, TokenRows<DType::f32> keys, const Block& block,
                        const Scratch& s) {
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    const float* q = s.queries + row * tile.dim;
    for (std::int32_t t = 0; t < block.tokens; ++t) {
      const float* key = keys.first + keys.offset[t];
      float sum = 0;
      for (std::int64_t i = 0; i < tile.dim; ++i) sum += q[i] * key[i];
      s.scores[row * attention_block + t] = sum;
    }
  }
  soften_narrow(tile, block, s);
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
