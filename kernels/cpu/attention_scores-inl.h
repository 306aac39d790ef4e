// Scores of a chunk's tokens and their softmax; included once per Highway target.
#if defined(COPPICE_KERNELS_CPU_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef COPPICE_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#undef COPPICE_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#else
#define COPPICE_KERNELS_CPU_ATTENTION_SCORES_INL_H_
#endif

#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention_block-inl.h"

// All tiles sum up a score in one order: lane l of kLanes adds the products of elements l,
// l + kLanes, ... one after the other, and lanes are added in pairs of neighbours, pairs of pairs,
// and so on.

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

// --- wide tiles -----------------------------------------------------------------------------

/// Where queries keep element i of a head: lane by lane.
HWY_INLINE std::int64_t place_of(std::int64_t i, std::int64_t dim) {
  return i % kLanes * (dim / kLanes) + i / kLanes;
}

/// queries[place_of(i)][row] = q[row][i] * factor for whole vectors of rows; rows past the tile's
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
      const auto to = [&](std::int64_t j) {
        return queries + place_of(i + j, tile.dim) * padded_rows + row;
      };
      hn::StoreU(hn::InterleaveLower(d, ac_low, be_low), d, to(0));
      hn::StoreU(hn::InterleaveUpper(d, ac_low, be_low), d, to(1));
      hn::StoreU(hn::InterleaveLower(d, ac_high, be_high), d, to(2));
      hn::StoreU(hn::InterleaveUpper(d, ac_high, be_high), d, to(3));
    }
  }
#endif
}

/// scores[token][row] for kTokens tokens.
template <int kVectors, int kTokens>
HWY_INLINE void score_tokens(const float* queries, const float* keys, const std::int64_t* offset,
                             std::int64_t dim, float* scores) {
  const Floats d;
  constexpr int kSums = kTokens * kVectors;
  const float* key[kTokens];
#pragma GCC unroll 8
  for (int t = 0; t < kTokens; ++t) key[t] = keys + offset[t];
  // Sums of lanes that wait for their neighbours': of 1, 2, 4, ... lanes.
  HWY_ALIGN float waiting[4][kSums * kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    Vec sum[kTokens][kVectors];
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[t][v] = hn::Zero(d);
    }
    for (std::int64_t i = lane; i < dim; i += kLanes) {
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
    int level = 0;
    for (; (lane >> level & 1) != 0; ++level) {
#pragma GCC unroll 8
      for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
        for (int v = 0; v < kVectors; ++v) {
          const Vec before = hn::Load(d, waiting[level] + (t * kVectors + v) * kLanes);
          sum[t][v] = hn::Add(before, sum[t][v]);
        }
      }
    }
    float* to = lane + 1 < kLanes ? waiting[level] : scores;
#pragma GCC unroll 8
    for (int t = 0; t < kTokens; ++t) {
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        hn::StoreU(sum[t][v], d, to + (t * kVectors + v) * kLanes);
      }
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
HWY_NOINLINE void soften_wide(const Tile& tile, const Piece& piece, const Scratch& s) {
  const Floats d;
  constexpr std::int32_t stride = kVectors * kLanes;
  if (tile.call->rule.soft_cap > 0) cap_scores(tile, s.scores, piece.tokens * stride);
  if (piece.masked) {
    const auto lane = hn::Iota(d, 0);
    const auto hidden = hn::Set(d, kMinusInfinity);
    for (std::int32_t t = 0; t < piece.tokens; ++t) {
      const auto begin = hn::Set(d, static_cast<float>(piece.row_begin[t]));
      const auto end = hn::Set(d, static_cast<float>(piece.row_end[t]));
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) {
        const auto row = hn::Add(lane, hn::Set(d, static_cast<float>(v * kLanes)));
        float* at = s.scores + t * stride + v * kLanes;
        const auto sees = hn::And(hn::Ge(row, begin), hn::Lt(row, end));
        hn::StoreU(hn::IfThenElse(sees, hn::LoadU(d, at), hidden), d, at);
      }
    }
  }
  if (piece.windowed) {
    const auto hidden = hn::Set(d, kMinusInfinity);
    for (std::int32_t t = 0; t < piece.tokens; ++t) {
      const auto end = hn::Set(d, piece.behind_end[t]);
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
    Vec maximum = hn::Set(d, kMinusInfinity);
    for (std::int32_t t = 0; t < piece.tokens; ++t) {
      maximum = hn::Max(maximum, hn::LoadU(d, scores + t * stride));
    }
    const Vec base = base_of(d, maximum);
    Vec sum = hn::Zero(d);
    for (std::int32_t t = 0; t < piece.tokens; ++t) {
      const Vec p = exp2_nonpositive(d, hn::Sub(hn::LoadU(d, scores + t * stride), base));
      sum = hn::Add(sum, p);
      hn::StoreU(p, d, scores + t * stride);
    }
    hn::StoreU(maximum, d, s.part_maximum + v * kLanes);
    hn::StoreU(sum, d, s.part_sum + v * kLanes);
  }
}

template <int kVectors>
HWY_NOINLINE void score_wide(const Tile& tile, TokenRows<DType::f32> keys, std::int32_t tokens,
                             const Ahead& ahead, const Scratch& s, float* scores) {
  constexpr int kTokens = kManyRegisters ? (kVectors <= 2 ? 8 : 4) : (kVectors == 1 ? 8 : 4);
  for (std::int32_t t = 0; t < tokens; t += kTokens) {
    ahead.ask(t, kTokens);
    score_tokens<kVectors, kTokens>(s.queries, keys.first, keys.offset + t, tile.dim,
                                    scores + t * kVectors * kLanes);
  }
}

template <DType kType, int kVectors>
void score_piece_wide(const Tile& tile, TokenRows<kType> keys, const Ahead& ahead,
                      const Piece& piece, const Scratch& s) {
  if constexpr (kType == DType::f32) {
    score_wide<kVectors>(tile, keys, piece.tokens, ahead, s, s.scores);
  } else {
    for (std::int32_t begin = 0; begin < piece.tokens; begin += attention_widened) {
      const std::int32_t end = std::min(begin + attention_widened, piece.tokens);
      score_wide<kVectors>(tile, widened(keys, begin, end, tile.dim, ahead, s), end - begin, {}, s,
                           s.scores + begin * kVectors * kLanes);
    }
  }
  soften_wide<kVectors>(tile, piece, s);
}

template <DType kType>
void score_wide_rows(std::int32_t vectors, const Tile& tile, TokenRows<kType> keys,
                     const Ahead& ahead, const Piece& piece, const Scratch& s) {
  switch (vectors) {
    case 1:
      return score_piece_wide<kType, 1>(tile, keys, ahead, piece, s);
    case 2:
      return score_piece_wide<kType, 2>(tile, keys, ahead, piece, s);
    case 3:
      if constexpr (kMostVectors >= 3) score_piece_wide<kType, 3>(tile, keys, ahead, piece, s);
      return;
    default:
      if constexpr (kMostVectors >= 4) score_piece_wide<kType, 4>(tile, keys, ahead, piece, s);
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
                               const Piece& piece, const Scratch& s, std::int32_t row) {
  const Floats d;
  constexpr int kTokens = kLanes / kRows;
  const float* queries = s.queries + row * tile.dim;
  HWY_ALIGN float lanes[kLanes];
  for (std::int32_t t = 0; t < piece.tokens; t += kTokens) {
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
      std::memcpy(s.scores + (row + r) * s.stride + t, lanes + r * kTokens,
                  kTokens * sizeof(float));
    }
  }
}

/// Leaves the sums of the weights to those who add up the values.
inline void soften_narrow(const Tile& tile, const Piece& piece, const Scratch& s) {
  const Floats d;
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    float* scores = s.scores + row * s.stride;
    std::int32_t end = piece.tokens;
    if (tile.call->rule.soft_cap > 0) {
      cap_scores(tile, scores, (end + kLanes - 1) / kLanes * kLanes);
    }
    if (piece.masked) {
      for (std::int32_t t = 0; t < piece.tokens; ++t) {
        if (row < piece.row_begin[t] || row >= piece.row_end[t]) scores[t] = kMinusInfinity;
      }
    }
    if (piece.windowed) {
      for (std::int32_t t = 0; t < piece.tokens; ++t) {
        if (s.behind[row] >= piece.behind_end[t]) scores[t] = kMinusInfinity;
      }
    }
    for (; end % kLanes != 0; ++end) scores[end] = kMinusInfinity;
    Vec maxima = hn::LoadU(d, scores);
    for (std::int32_t t = kLanes; t < end; t += kLanes) {
      maxima = hn::Max(maxima, hn::LoadU(d, scores + t));
    }
    const float maximum = hn::GetLane(hn::MaxOfLanes(d, maxima));
    const Vec base = base_of(d, hn::Set(d, maximum));
    for (std::int32_t t = 0; t < end; t += kLanes) {
      hn::StoreU(exp2_nonpositive(d, hn::Sub(hn::LoadU(d, scores + t), base)), d, scores + t);
    }
    s.part_maximum[row] = maximum;
  }
}

template <DType kType>
void score_narrow_rows(const Tile& tile, TokenRows<kType> keys, const Ahead& ahead,
                       const Piece& piece, const Scratch& s) {
  std::int32_t row = 0;
  if constexpr (kLanes >= 4) {
    for (; row + 4 <= tile.rows; row += 4) score_narrow<kType, 4>(tile, keys, ahead, piece, s, row);
  }
  if constexpr (kLanes >= 2) {
    for (; row + 2 <= tile.rows; row += 2) score_narrow<kType, 2>(tile, keys, ahead, piece, s, row);
  }
  for (; row < tile.rows; ++row) score_narrow<kType, 1>(tile, keys, ahead, piece, s, row);
  soften_narrow(tile, piece, s);
}

// --- heads of any size --------------------------------------------------------------------------

template <DType kType>
void score_plain(const Tile& tile, TokenRows<kType> keys, const Ahead& ahead, const Piece& piece,
                 const Scratch& s) {
  for (std::int32_t begin = 0; begin < piece.tokens; begin += attention_widened) {
    const std::int32_t end = std::min(begin + attention_widened, piece.tokens);
    const TokenRows<DType::f32> wide = widened(keys, begin, end, tile.dim, ahead, s);
    for (std::int32_t row = 0; row < tile.rows; ++row) {
      const float* q = s.queries + row * tile.dim;
      for (std::int32_t t = begin; t < end; ++t) {
        const float* key = wide.first + wide.offset[t - begin];
        float sum = 0;
        for (std::int64_t i = 0; i < tile.dim; ++i) sum += q[i] * key[i];
        s.scores[row * s.stride + t] = sum;
      }
    }
  }
  soften_narrow(tile, piece, s);
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
