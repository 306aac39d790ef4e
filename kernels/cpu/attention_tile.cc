#include "kernels/cpu/attention_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_tile.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/simd-inl.h"

// A tile is a run of packed rows of one item: row i is query q_begin + i / group, head
// kv_head * group + i % group. Two kinds:
//   wide    rows in vector lanes for the scores, which need transposed queries
//   narrow  (few rows) head elements in lanes for the scores, summed by a transposing tree
// and, for heads whose size is no multiple of 16, plain loops in narrow tiles. All run the softmax
// online over blocks of tokens, in base 2 with log2(e) folded into the queries, and sum values with
// head elements in lanes.

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

// Multiples of 16 are multiples of any vector up to 16 floats.
using Floats = hn::CappedTag<float, 16>;
using Vec = hn::Vec<Floats>;
constexpr std::int32_t kLanes = static_cast<std::int32_t>(hn::MaxLanes(Floats()));
constexpr bool kManyRegisters = kLanes >= 16;                  ///< 32 vector registers
constexpr std::int32_t kMostVectors = kManyRegisters ? 4 : 2;  ///< of a wide tile
constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();
constexpr float kLog2E = 1.44269504088896341f;
constexpr float kLn2 = 0.69314718055994531f;

struct Scratch {
  float* queries;  ///< wide: [head_dim][row]; narrow: [row][head_dim]; scaled
  float* scores;   ///< wide: [token][row]; narrow: [row][attention_block]
  float* out;      ///< [row][head_dim], not normalised
  float* maximum;  ///< [row], base 2
  float* sum;      ///< [row]
  float* rescale;  ///< [row]: factor of `out` before the block is added
};

Scratch carve(float* memory, std::int64_t dim) {
  Scratch s;
  s.queries = memory;
  s.scores = s.queries + attention_rows * dim;
  s.out = s.scores + attention_rows * attention_block;
  s.maximum = s.out + attention_rows * dim;
  s.sum = s.maximum + attention_rows;
  s.rescale = s.sum + attention_rows;
  return s;
}

struct Tile {
  const AttentionCall* call;
  const AttentionPlan::Chunk* chunk;
  std::int32_t kv_head;
  std::int32_t first_row;  ///< packed row of the item
  std::int32_t rows;
  std::int64_t dim;

  std::int32_t query(std::int32_t row) const {
    return chunk->q_begin + (first_row + row) / call->group;
  }
  std::int32_t head(std::int32_t row) const {
    return kv_head * call->group + (first_row + row) % call->group;
  }
  const float* q_row(std::int32_t row) const {
    return call->q + query(row) * call->q_stride + head(row) * dim;
  }
};

/// Where the tokens of a block lie and which rows of the tile see them.
struct Block {
  std::int32_t tokens;
  std::int64_t offset[attention_block];  ///< into keys and values
  std::int32_t row_begin[attention_block], row_end[attention_block];
  bool masked;  ///< some row does not see some token
};

/// Fills `block` from flattened tokens [begin, end); false if no row of the tile sees any.
bool fill_block(const Tile& tile, std::int32_t begin, std::int32_t end, Block& block) {
  const AttentionPlan& plan = *tile.call->plan;
  const KvLayout& layout = *tile.call->layout;
  block.tokens = end - begin;
  block.masked = false;
  if (!tile.chunk->full) {
    bool seen = false;
    for (std::int32_t t = 0; t < block.tokens; ++t) {
      const auto token = static_cast<std::size_t>(begin + t);
      const auto row_of = [&](std::int32_t query) {
        return std::clamp((query - tile.chunk->q_begin) * tile.call->group - tile.first_row, 0,
                          tile.rows);
      };
      block.row_begin[t] = row_of(plan.q_begin[token]);
      block.row_end[t] = row_of(plan.q_end[token]);
      seen = seen || block.row_begin[t] < block.row_end[t];
      block.masked = block.masked || block.row_begin[t] > 0 || block.row_end[t] < tile.rows;
    }
    if (!seen) return false;
  }
  const auto page_size = static_cast<std::uint32_t>(layout.page_size);
  const std::int64_t page_floats = std::int64_t{layout.kv_heads} * page_size * tile.dim;
  const std::int64_t head_floats = std::int64_t{tile.kv_head} * page_size * tile.dim;
  const bool shifts = (page_size & (page_size - 1)) == 0;
  const int shift = __builtin_ctz(page_size);
  for (std::int32_t t = 0; t < block.tokens; ++t) {
    const auto slot = static_cast<std::uint32_t>(plan.slot[static_cast<std::size_t>(begin + t)]);
    const std::uint32_t page = shifts ? slot >> shift : slot / page_size;
    block.offset[t] = page * page_floats + head_floats + (slot - page * page_size) * tile.dim;
  }
  // The score loops run over whole groups of tokens: repeat the last one.
  for (std::int32_t t = block.tokens; t < attention_block && t % 16 != 0; ++t) {
    block.offset[t] = block.offset[block.tokens - 1];
  }
  return true;
}

// --- values ---------------------------------------------------------------------------------

/// out[r] = out[r] * rescale[r] + sum_t p(t, r) v_t for kRows rows and kVectors vectors of
/// head elements; p(t, r) = weights[t * token_stride + r * row_stride].
template <int kRows, int kVectors>
HWY_INLINE void add_values(const float* weights, std::int64_t token_stride, std::int64_t row_stride,
                           const float* values, const Block& block, bool first,
                           const float* rescale, std::int64_t dim, float* out) {
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
  for (std::int32_t t = 0; t < block.tokens; ++t) {
    const float* value = values + block.offset[t];
    const float* weight = weights + t * token_stride;
    if constexpr (kRows <= kVectors) {
      Vec p[kRows];
#pragma GCC unroll 8
      for (int r = 0; r < kRows; ++r) p[r] = hn::Set(d, weight[r * row_stride]);
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) {
        const Vec x = hn::LoadU(d, value + v * kLanes);
#pragma GCC unroll 8
        for (int r = 0; r < kRows; ++r) sum[r][v] = hn::MulAdd(p[r], x, sum[r][v]);
      }
    } else {
      Vec x[kVectors];
#pragma GCC unroll 8
      for (int v = 0; v < kVectors; ++v) x[v] = hn::LoadU(d, value + v * kLanes);
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

template <int kRows>
HWY_NOINLINE void add_values_rows(const Tile& tile, const Block& block, const Scratch& s,
                                  std::int32_t row, std::int64_t token_stride,
                                  std::int64_t row_stride, bool first) {
  const float* weights = s.scores + row * row_stride;
  float* out = s.out + row * tile.dim;
  std::int64_t column = 0;
  const auto strip = [&]<int kVectors>() HWY_ATTR {
    for (; column + kVectors * kLanes <= tile.dim; column += kVectors * kLanes) {
      add_values<kRows, kVectors>(weights, token_stride, row_stride, tile.call->values + column,
                                  block, first, s.rescale + row, tile.dim, out + column);
    }
  };
  if constexpr (kManyRegisters && kRows <= 2) strip.template operator()<8>();
  if constexpr (kManyRegisters || kRows <= 2) strip.template operator()<4>();
  strip.template operator()<2>();
  strip.template operator()<1>();
}

void add_block_values(const Tile& tile, const Block& block, const Scratch& s,
                      std::int64_t token_stride, std::int64_t row_stride, bool first) {
  std::int32_t row = 0;
  for (; row + 4 <= tile.rows; row += 4) {
    add_values_rows<4>(tile, block, s, row, token_stride, row_stride, first);
  }
  if (row + 2 <= tile.rows) {
    add_values_rows<2>(tile, block, s, row, token_stride, row_stride, first);
    row += 2;
  }
  if (row < tile.rows) add_values_rows<1>(tile, block, s, row, token_stride, row_stride, first);
}

// --- wide tiles -----------------------------------------------------------------------------

/// queries[i][row] = q[row][i] * factor for whole vectors of rows; rows past the tile's
/// repeat its last one.
void transpose_queries(const Tile& tile, std::int32_t padded_rows, float factor, float* queries) {
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

template <int kVectors>
HWY_INLINE void soften_wide(const Block& block, const Scratch& s) {
  const Floats d;
  constexpr std::int32_t stride = kVectors * kLanes;
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
HWY_NOINLINE void score_wide(const Tile& tile, const Block& block, const Scratch& s) {
  constexpr int kTokens = kManyRegisters ? (kVectors <= 2 ? 8 : 4) : (kVectors == 1 ? 8 : 4);
  for (std::int32_t t = 0; t < block.tokens; t += kTokens) {
    score_tokens<kVectors, kTokens>(s.queries, tile.call->keys, block.offset + t, tile.dim,
                                    s.scores + t * kVectors * kLanes);
  }
  soften_wide<kVectors>(block, s);
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
template <int kRows>
HWY_NOINLINE void score_narrow(const Tile& tile, const Block& block, const Scratch& s,
                               std::int32_t row) {
  const Floats d;
  constexpr int kTokens = kLanes / kRows;
  const float* queries = s.queries + row * tile.dim;
  HWY_ALIGN float lanes[kLanes];
  for (std::int32_t t = 0; t < block.tokens; t += kTokens) {
    Vec sum[kLanes];
#pragma GCC unroll 16
    for (int i = 0; i < kLanes; ++i) sum[i] = hn::Zero(d);
    for (std::int64_t i = 0; i < tile.dim; i += kLanes) {
      Vec q[kRows];
#pragma GCC unroll 4
      for (int r = 0; r < kRows; ++r) q[r] = hn::LoadU(d, queries + r * tile.dim + i);
#pragma GCC unroll 16
      for (int j = 0; j < kTokens; ++j) {
        const Vec k = hn::LoadU(d, tile.call->keys + block.offset[t + j] + i);
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

void soften_narrow(const Tile& tile, const Block& block, const Scratch& s) {
  const Floats d;
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    float* scores = s.scores + row * attention_block;
    std::int32_t end = block.tokens;
    if (block.masked) {
      for (std::int32_t t = 0; t < block.tokens; ++t) {
        if (row < block.row_begin[t] || row >= block.row_end[t]) scores[t] = kMinusInfinity;
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

void score_narrow_rows(const Tile& tile, const Block& block, const Scratch& s) {
  std::int32_t row = 0;
  if constexpr (kLanes >= 4) {
    for (; row + 4 <= tile.rows; row += 4) score_narrow<4>(tile, block, s, row);
  }
  if constexpr (kLanes >= 2) {
    for (; row + 2 <= tile.rows; row += 2) score_narrow<2>(tile, block, s, row);
  }
  for (; row < tile.rows; ++row) score_narrow<1>(tile, block, s, row);
  soften_narrow(tile, block, s);
}

// --- heads of any size --------------------------------------------------------------------------

void score_plain(const Tile& tile, const Block& block, const Scratch& s) {
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    const float* q = s.queries + row * tile.dim;
    for (std::int32_t t = 0; t < block.tokens; ++t) {
      const float* key = tile.call->keys + block.offset[t];
      float sum = 0;
      for (std::int64_t i = 0; i < tile.dim; ++i) sum += q[i] * key[i];
      s.scores[row * attention_block + t] = sum;
    }
  }
  soften_narrow(tile, block, s);
}

void add_block_values_plain(const Tile& tile, const Block& block, const Scratch& s, bool first) {
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    float* out = s.out + row * tile.dim;
    for (std::int64_t i = 0; i < tile.dim; ++i) out[i] = first ? 0 : out[i] * s.rescale[row];
    for (std::int32_t t = 0; t < block.tokens; ++t) {
      const float* value = tile.call->values + block.offset[t];
      const float weight = s.scores[row * attention_block + t];
      for (std::int64_t i = 0; i < tile.dim; ++i) out[i] += weight * value[i];
    }
  }
}

// --- items ----------------------------------------------------------------------------------

template <class Out>
void store_row(const float* from, float factor, std::int64_t dim, Out* to) {
  const Floats d;
  const Vec factors = hn::Set(d, factor);
  std::int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) {
    store_activation(d, hn::Mul(factors, hn::LoadU(d, from + i)), to + i);
  }
  for (; i < dim; ++i) store_activation(factor * from[i], to + i);
}

void finish(const Tile& tile, const Scratch& s) {
  const AttentionCall& call = *tile.call;
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    const float* from = s.out + row * tile.dim;
    const float factor = s.sum[row] > 0 ? 1.0f / s.sum[row] : 0.0f;
    if (call.partial_out == nullptr) {
      const std::int64_t at =
          (std::int64_t{tile.query(row)} * call.heads + tile.head(row)) * tile.dim;
      if (call.out_dtype == DType::f32) {
        store_row(from, factor, tile.dim, static_cast<float*>(call.out) + at);
      } else {
        store_row(from, factor, tile.dim, static_cast<std::uint16_t*>(call.out) + at);
      }
      continue;
    }
    const std::int64_t partial = tile.chunk->partial + (tile.query(row) - tile.chunk->q_begin);
    const std::int64_t at = partial * call.heads + tile.head(row);
    store_row(from, factor, tile.dim, call.partial_out + at * tile.dim);
    call.partial_lse[at] = (s.maximum[row] + std::log2(s.sum[row])) * kLn2;
  }
}

/// Rows of the next tile when `left` rows are left, and its vectors; 0 vectors: narrow.
std::int32_t next_tile(std::int32_t left, bool plain, std::int32_t* vectors) {
  if (plain) {
    *vectors = 0;
    return std::min(left, attention_rows);
  }
  // A vector of rows pays from about five eighths on; below, head elements fill the lanes.
  constexpr std::int32_t enough = kLanes * 5 / 8 + 1;
  *vectors = std::min(left / kLanes + (left % kLanes >= enough ? 1 : 0), kMostVectors);
  return *vectors == 0 ? left : std::min(left, *vectors * kLanes);
}

void attend_item(const AttentionCall& call, std::int32_t chunk_index, std::int32_t kv_head,
                 float* memory) {
  const AttentionPlan::Chunk& chunk = call.plan->chunks[static_cast<std::size_t>(chunk_index)];
  const std::int64_t dim = call.layout->head_dim;
  const Scratch s = carve(memory, dim);
  const std::int32_t rows = (chunk.q_end - chunk.q_begin) * call.group;
  const bool plain = dim % 16 != 0;
  Block block;
  for (std::int32_t row = 0; row < rows;) {
    std::int32_t vectors = 0;
    const std::int32_t tile_rows = next_tile(rows - row, plain, &vectors);
    const Tile tile{&call, &chunk, kv_head, row, tile_rows, dim};
    row += tile_rows;

    const std::int32_t padded_rows = vectors == 0 ? tile_rows : vectors * kLanes;
    std::fill_n(s.maximum, padded_rows, kMinusInfinity);
    std::fill_n(s.sum, padded_rows, 0.0f);
    const float factor = call.scale * kLog2E;
    if (vectors > 0) {
      transpose_queries(tile, padded_rows, factor, s.queries);
    } else {
      for (std::int32_t r = 0; r < tile_rows; ++r) {
        store_row(tile.q_row(r), factor, dim, s.queries + r * dim);
      }
    }
    bool first = true;
    for (std::int32_t begin = chunk.kv_begin; begin < chunk.kv_end; begin += attention_block) {
      const std::int32_t end = std::min(begin + attention_block, chunk.kv_end);
      if (!fill_block(tile, begin, end, block)) continue;
      if (plain) {
        score_plain(tile, block, s);
        add_block_values_plain(tile, block, s, first);
        first = false;
        continue;
      }
      switch (vectors) {
        case 0:
          score_narrow_rows(tile, block, s);
          break;
        case 1:
          score_wide<1>(tile, block, s);
          break;
        case 2:
          score_wide<2>(tile, block, s);
          break;
        case 3:
          if constexpr (kMostVectors >= 3) score_wide<3>(tile, block, s);
          break;
        default:
          if constexpr (kMostVectors >= 4) score_wide<4>(tile, block, s);
          break;
      }
      const bool wide = vectors > 0;
      add_block_values(tile, block, s, wide ? padded_rows : 1, wide ? 1 : attention_block, first);
      first = false;
    }
    if (first) std::fill_n(s.out, tile_rows * dim, 0.0f);
    finish(tile, s);
  }
}

template <class Out>
void join_head(const AttentionCall& call, std::int32_t query, std::int32_t head, Out* out) {
  const Floats d;
  const AttentionPlan& plan = *call.plan;
  const std::int64_t dim = call.layout->head_dim;
  const auto q = static_cast<std::size_t>(query);
  const std::int32_t* partial = plan.partial_of.data() + plan.reduce_begin[q];
  const std::int32_t count = plan.reduce_begin[q + 1] - plan.reduce_begin[q];
  const auto at = [&](std::int32_t i) { return std::int64_t{partial[i]} * call.heads + head; };
  if (count == 1) return store_row(call.partial_out + at(0) * dim, 1.0f, dim, out);

  float maximum = kMinusInfinity;
  for (std::int32_t i = 0; i < count; ++i) maximum = std::max(maximum, call.partial_lse[at(i)]);
  // Weights of a few thousand tokens fit; those of more are made again for every vector.
  const auto weight_of = [&](std::int32_t i) {
    return std::exp(call.partial_lse[at(i)] - maximum);
  };
  constexpr std::int32_t most = 32;
  float weights[most];
  float sum = 0;
  for (std::int32_t i = 0; i < count; ++i) {
    const float weight = weight_of(i);
    if (i < most) weights[i] = weight;
    sum += weight;
  }
  const Vec factor = hn::Set(d, 1.0f / sum);
  std::int64_t c = 0;
  for (; c + kLanes <= dim; c += kLanes) {
    Vec total = hn::Zero(d);
    for (std::int32_t i = 0; i < count; ++i) {
      const Vec weight = hn::Set(d, i < most ? weights[i] : weight_of(i));
      total = hn::MulAdd(weight, hn::LoadU(d, call.partial_out + at(i) * dim + c), total);
    }
    store_activation(d, hn::Mul(total, factor), out + c);
  }
  for (; c < dim; ++c) {
    float total = 0;
    for (std::int32_t i = 0; i < count; ++i) {
      total += (i < most ? weights[i] : weight_of(i)) * call.partial_out[at(i) * dim + c];
    }
    store_activation(total / sum, out + c);
  }
}

void join_queries(const AttentionCall& call, std::int32_t q_begin, std::int32_t q_end) {
  const std::int64_t dim = call.layout->head_dim;
  for (std::int32_t q = q_begin; q < q_end; ++q) {
    for (std::int32_t head = 0; head < call.heads; ++head) {
      const std::int64_t at = (std::int64_t{q} * call.heads + head) * dim;
      if (call.out_dtype == DType::f32) {
        join_head(call, q, head, static_cast<float*>(call.out) + at);
      } else {
        join_head(call, q, head, static_cast<std::uint16_t*>(call.out) + at);
      }
    }
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(attend_item);
HWY_EXPORT(join_queries);

std::int64_t attention_scratch_floats(std::int32_t head_dim) {
  return attention_rows * (2 * std::int64_t{head_dim} + attention_block + 3);
}

void attend(const AttentionCall& call, std::int32_t chunk, std::int32_t kv_head, float* scratch) {
  HWY_DYNAMIC_DISPATCH(attend_item)(call, chunk, kv_head, scratch);
}

void join_partials(const AttentionCall& call, std::int32_t q_begin, std::int32_t q_end) {
  HWY_DYNAMIC_DISPATCH(join_queries)(call, q_begin, q_end);
}

}  // namespace coppice::cpu
#endif
