#include "kernels/cpu/attention_tile.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_tile.cc"
#include "hwy/foreach_target.h"
// After foreach_target.
#include "kernels/cpu/attention_block-inl.h"
#include "kernels/cpu/attention_scores-inl.h"
#include "kernels/cpu/attention_values-inl.h"
#include "kernels/cpu/simd-inl.h"

// A tile is a run of packed rows of one item. Two kinds:
//   wide    rows in vector lanes for the scores, which need transposed queries
//   narrow  (few rows) head elements in lanes for the scores, summed by a transposing tree
// and, for heads whose size is no multiple of 16, plain loops in narrow tiles. All run the softmax
// online over chunks, in base 2 with log2(e) folded into the queries, and sum values with head
// elements in lanes. Keys and values of 16 bits are widened as they are loaded where few rows use
// them, else some tokens at a time.
//
// What a row gives is the same, bit for bit, in every kind of tile, among any rows and tokens that
// it does not see: all kinds sum up scores in one order (attention_scores-inl.h), and weights and
// values token by token from 0, where tokens that it does not see add 0; chunks are joined one
// after the other by join_factors() and join_row(), in the tile as behind it.

HWY_BEFORE_NAMESPACE();
namespace coppice::cpu::HWY_NAMESPACE {

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

/// Joins a softmax so far, (maximum, sum), with that of a chunk: the new ones, and what both
/// results are multiplied by.
HWY_INLINE void join_factors(Vec& maximum, Vec& sum, Vec part_maximum, Vec part_sum, Vec& factor,
                             Vec& part_factor) {
  const Floats d;
  const Vec joined = hn::Max(maximum, part_maximum);
  const Vec base = base_of(d, joined);
  factor = exp2_nonpositive(d, hn::Sub(maximum, base));
  part_factor = exp2_nonpositive(d, hn::Sub(part_maximum, base));
  sum = hn::MulAdd(part_sum, part_factor, hn::Mul(sum, factor));
  maximum = joined;
}

HWY_NOINLINE void join_row(const float* part, float factor, float part_factor, std::int64_t dim,
                           float* out) {
  const auto join = [&](auto d, std::int64_t i) HWY_ATTR {
    const auto before = hn::Mul(hn::LoadU(d, out + i), hn::Set(d, factor));
    hn::StoreU(hn::MulAdd(hn::LoadU(d, part + i), hn::Set(d, part_factor), before), d, out + i);
  };
  std::int64_t i = 0;
  for (; i + kLanes <= dim; i += kLanes) join(Floats(), i);
  for (; i < dim; ++i) join(hn::CappedTag<float, 1>(), i);
}

/// The scratch's chunk to its results so far.
void join_chunk(const Tile& tile, std::int32_t padded_rows, const Scratch& s) {
  const Floats d;
  for (std::int32_t row = 0; row < padded_rows; row += kLanes) {
    Vec maximum = hn::LoadU(d, s.maximum + row), sum = hn::LoadU(d, s.sum + row);
    Vec factor, part_factor;
    join_factors(maximum, sum, hn::LoadU(d, s.part_maximum + row), hn::LoadU(d, s.part_sum + row),
                 factor, part_factor);
    hn::StoreU(maximum, d, s.maximum + row);
    hn::StoreU(sum, d, s.sum + row);
    hn::StoreU(factor, d, s.factor + row);
    hn::StoreU(part_factor, d, s.part_factor + row);
  }
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    join_row(s.part + row * tile.dim, s.factor[row], s.part_factor[row], tile.dim,
             s.out + row * tile.dim);
  }
}

/// Where the partial result of a chunk lies for a row of the tile; -1: it has none.
std::int64_t partial_place(const Tile& tile, const AttentionPlan::Chunk& chunk, std::int32_t row) {
  const std::int32_t query = tile.query(row);
  if (query < chunk.q_begin || query >= chunk.q_end) return -1;
  const std::int64_t partial = chunk.partial - tile.item->partial_shift + (query - chunk.q_begin);
  return partial * tile.call->heads + tile.head(row);
}

void keep_partial(const Tile& tile, const AttentionPlan::Chunk& chunk, bool blind,
                  const Scratch& s) {
  const AttentionCall& call = *tile.call;
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    const std::int64_t at = partial_place(tile, chunk, row);
    if (at < 0) continue;
    float* to = call.partial_out + at * tile.dim;
    if (blind) {
      std::fill_n(to, tile.dim, 0.0f);
    } else {
      std::copy_n(s.part + row * tile.dim, tile.dim, to);
    }
    call.partial_maximum[at] = blind ? kMinusInfinity : s.part_maximum[row];
    call.partial_sum[at] = blind ? 0.0f : s.part_sum[row];
  }
}

void write_output(const AttentionCall& call, std::int32_t query, std::int32_t head,
                  const float* from, float sum) {
  const std::int64_t dim = call.layout->head_dim;
  const std::int64_t at = (std::int64_t{query} * call.heads + head) * dim;
  const float factor = sum > 0 ? 1.0f / sum : 0.0f;
  if (call.out_dtype == DType::f32) {
    store_row(from, factor, dim, static_cast<float*>(call.out) + at);
  } else {
    store_row(from, factor, dim, static_cast<std::uint16_t*>(call.out) + at);
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

/// Queries with the scale and log2(e) in them, as the tile's scores want them.
void load_queries(const Tile& tile, std::int32_t vectors, std::int32_t padded_rows,
                  const Scratch& s) {
  const float factor = tile.call->rule.scale * kLog2E;
  if (vectors > 0) return transpose_queries(tile, padded_rows, factor, s.queries);
  for (std::int32_t r = 0; r < tile.rows; ++r) {
    store_row(tile.q_row(r), factor, tile.dim, s.queries + r * tile.dim);
  }
}

template <DType kType>
void attend_tile(Tile& tile, std::int32_t vectors, Scratch& s) {
  const AttentionCall& call = *tile.call;
  const AttentionItem& item = *tile.item;
  const std::int64_t dim = tile.dim;
  const bool plain = dim % 16 != 0;
  const std::int32_t padded_rows =
      vectors == 0 ? (tile.rows + kLanes - 1) / kLanes * kLanes : vectors * kLanes;
  std::fill_n(s.maximum, padded_rows, kMinusInfinity);
  std::fill_n(s.sum, padded_rows, 0.0f);
  // Rows past the tile's count among those of a vector, too.
  std::fill_n(s.part_maximum, padded_rows, kMinusInfinity);
  std::fill_n(s.part_sum, padded_rows, 0.0f);
  if (tile.window() > 0) place_rows(tile, padded_rows, s);

  const auto chunk_at = [&](std::int32_t i) -> const AttentionPlan::Chunk& {
    return call.plan->chunks[static_cast<std::size_t>(i)];
  };
  // Fills `piece` from the next chunk that a row of the tile sees some of; item.chunk_end: none.
  const auto fill = [&](std::int32_t i, Piece& piece) {
    for (; i < item.chunk_end; ++i) {
      const AttentionPlan::Chunk& chunk = chunk_at(i);
      if (tile.row_of(chunk.q_begin) >= tile.row_of(chunk.q_end)) continue;
      gather(tile, chunk, piece);
      if (piece.tokens > 0) break;
      if (!item.whole) keep_partial(tile, chunk, true, s);
    }
    return i;
  };
  Piece *now = &s.pieces[0], *next = &s.pieces[1];
  bool first = true;
  std::int32_t at = fill(item.chunk_begin, *now);
  if (at < item.chunk_end) load_queries(tile, vectors, padded_rows, s);
  while (at < item.chunk_end) {
    const std::int32_t next_at = fill(at + 1, *next);
    const auto keys = rows_of<kType>(call.keys, *now);
    const auto values = rows_of<kType>(call.values, *now);
    Ahead values_ahead, keys_ahead;
    if (call.far) values_ahead = ahead_of(values, now->tokens, dim);
    if (call.far && next_at < item.chunk_end) {
      keys_ahead = ahead_of(rows_of<kType>(call.keys, *next), next->tokens, dim);
    }
    float* out = item.whole && first ? s.out : s.part;
    if (plain) {
      score_plain(tile, keys, values_ahead, *now, s);
      add_piece_values_plain(tile, values, *now, keys_ahead, s, out);
    } else {
      if (vectors == 0) {
        score_narrow_rows(tile, keys, values_ahead, *now, s);
      } else {
        score_wide_rows(vectors, tile, keys, values_ahead, *now, s);
      }
      add_piece_values(tile, values, *now, keys_ahead, s, padded_rows, vectors == 0, out);
    }
    if (!item.whole) {
      keep_partial(tile, chunk_at(at), false, s);
    } else if (first) {
      std::copy_n(s.part_maximum, padded_rows, s.maximum);
      std::copy_n(s.part_sum, padded_rows, s.sum);
    } else {
      join_chunk(tile, padded_rows, s);
    }
    first = false;
    at = next_at;
    std::swap(now, next);
  }
  if (!item.whole) return;
  if (first) std::fill_n(s.out, tile.rows * dim, 0.0f);
  for (std::int32_t row = 0; row < tile.rows; ++row) {
    write_output(call, tile.query(row), tile.head(row), s.out + row * dim, s.sum[row]);
  }
}

void attend_item(const AttentionCall& call, const AttentionItem& item, std::int32_t kv_head,
                 float* memory) {
  const std::int64_t dim = call.layout->head_dim;
  Scratch s = carve(memory, dim, call.longest);
  for (std::int32_t row = item.row_begin; row < item.row_end;) {
    std::int32_t vectors = 0;
    const std::int32_t rows = next_tile(item.row_end - row, dim % 16 != 0, &vectors);
    Tile tile{&call, &item, kv_head, row, rows, dim};
    row += rows;
    switch (call.kv_dtype) {
      case DType::f32:
        attend_tile<DType::f32>(tile, vectors, s);
        break;
      case DType::f16:
        attend_tile<DType::f16>(tile, vectors, s);
        break;
      case DType::bf16:
        attend_tile<DType::bf16>(tile, vectors, s);
        break;
    }
  }
}

// Into the first partial result, as a tile joins its chunks.
void join_head(const AttentionCall& call, std::int32_t query, std::int32_t head,
               std::int32_t shift) {
  const Floats d;
  const AttentionPlan& plan = *call.plan;
  const std::int64_t dim = call.layout->head_dim;
  const auto q = static_cast<std::size_t>(query);
  const std::int32_t* partial = plan.partial_of.data() + plan.reduce_begin[q];
  const std::int32_t count = plan.reduce_begin[q + 1] - plan.reduce_begin[q];
  const auto at = [&](std::int32_t i) {
    return std::int64_t{partial[i] - shift} * call.heads + head;
  };
  float* out = call.partial_out + at(0) * dim;
  Vec maximum = hn::Set(d, call.partial_maximum[at(0)]);
  Vec sum = hn::Set(d, call.partial_sum[at(0)]);
  for (std::int32_t i = 1; i < count; ++i) {
    Vec factor, part_factor;
    join_factors(maximum, sum, hn::Set(d, call.partial_maximum[at(i)]),
                 hn::Set(d, call.partial_sum[at(i)]), factor, part_factor);
    join_row(call.partial_out + at(i) * dim, hn::GetLane(factor), hn::GetLane(part_factor), dim,
             out);
  }
  write_output(call, query, head, out, hn::GetLane(sum));
}

void join_queries(const AttentionCall& call, std::int32_t q_begin, std::int32_t q_end,
                  std::int32_t shift) {
  for (std::int32_t q = q_begin; q < q_end; ++q) {
    for (std::int32_t head = 0; head < call.heads; ++head) join_head(call, q, head, shift);
  }
}

}  // namespace coppice::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace coppice::cpu {

HWY_EXPORT(attend_item);
HWY_EXPORT(join_queries);

std::int64_t attention_scratch_floats(std::int32_t head_dim, std::int32_t longest) {
  const std::int64_t stride = (std::int64_t{longest} + 15) / 16 * 16;
  return attention_rows * (3 * std::int64_t{head_dim} + stride + 7) + 10 * stride +
         attention_widened * (std::int64_t{head_dim} + 2);
}

void attend(const AttentionCall& call, const AttentionItem& item, std::int32_t kv_head,
            float* scratch) {
  HWY_DYNAMIC_DISPATCH(attend_item)(call, item, kv_head, scratch);
}

void join_partials(const AttentionCall& call, std::int32_t q_begin, std::int32_t q_end,
                   std::int32_t partial_shift) {
  HWY_DYNAMIC_DISPATCH(join_queries)(call, q_begin, q_end, partial_shift);
}

}  // namespace coppice::cpu
#endif
