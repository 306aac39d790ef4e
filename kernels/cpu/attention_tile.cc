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

// A tile is a run of packed rows of one item: row i is query q_begin + i / group, head
// kv_head * group + i % group. Two kinds:
//   wide    rows in vector lanes for the scores, which need transposed queries
//   narrow  (few rows) head elements in lanes for the scores, summed by a transposing tree
// and, for heads whose size is no multiple of 16, plain loops in narrow tiles. All run the softmax
// online over blocks of tokens, in base 2 with log2(e) folded into the queries, and sum values with
// head elements in lanes. Keys and values of 16 bits are widened as they are loaded where few rows
// use them, else a block at a time.

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
void attend_as(const AttentionCall& call, std::int32_t chunk_index, std::int32_t kv_head,
               float* memory) {
  const AttentionPlan::Chunk& chunk = call.plan->chunks[static_cast<std::size_t>(chunk_index)];
  const std::int64_t dim = call.layout->head_dim;
  const Scratch s = carve(memory, dim);
  const std::int32_t rows = (chunk.q_end - chunk.q_begin) * call.group;
  const bool plain = dim % 16 != 0;
  for (std::int32_t row = 0; row < rows;) {
    std::int32_t vectors = 0;
    const std::int32_t tile_rows = next_tile(rows - row, plain, &vectors);
    Tile tile{&call, &chunk, kv_head, row, tile_rows, dim};
    row += tile_rows;

    const std::int32_t padded_rows = vectors == 0 ? tile_rows : vectors * kLanes;
    std::fill_n(s.maximum, padded_rows, kMinusInfinity);
    std::fill_n(s.sum, padded_rows, 0.0f);
    if (tile.window() > 0) place_rows(tile, padded_rows, s);
    const auto fill = [&](std::int32_t from, Block& block) {
      for (std::int32_t end; from < chunk.kv_end; from = end) {
        end = std::min(from + attention_block, chunk.kv_end);
        if (fill_block(tile, from, end, block)) return end;
      }
      return chunk.kv_begin;  // no block was left
    };
    Block blocks[2];
    Block *now = &blocks[0], *next = &blocks[1];
    bool first = true;
    std::int32_t end = fill(chunk.kv_begin, *now);
    if (end > chunk.kv_begin) load_queries(tile, vectors, padded_rows, s);
    while (end > chunk.kv_begin) {
      const std::int32_t next_end = fill(end, *next);
      const auto keys = rows_of<kType>(call.keys, *now);
      const auto values = rows_of<kType>(call.values, *now);
      Ahead values_ahead, keys_ahead;
      if (call.far) values_ahead = ahead_of(values, now->tokens, dim);
      if (call.far && next_end > chunk.kv_begin) {
        keys_ahead = ahead_of(rows_of<kType>(call.keys, *next), next->tokens, dim);
      }
      if (plain) {
        score_plain(tile, widened(keys, dim, values_ahead, s, *now), *now, s);
        add_block_values_plain(tile, widened(values, dim, keys_ahead, s, *now), now->tokens, s,
                               first);
      } else if (vectors == 0) {
        score_narrow_rows(tile, keys, values_ahead, *now, s);
        add_block_values(tile, values, now->tokens, keys_ahead, s, 1, attention_block, first);
      } else if constexpr (kType == DType::f32) {
        score_wide_rows(vectors, tile, keys, values_ahead, *now, s);
        add_block_values(tile, values, now->tokens, keys_ahead, s, padded_rows, 1, first);
      } else {
        score_wide_rows(vectors, tile, widened(keys, dim, values_ahead, s, *now), {}, *now, s);
        add_block_values(tile, widened(values, dim, keys_ahead, s, *now), now->tokens, {}, s,
                         padded_rows, 1, first);
      }
      first = false;
      end = next_end;
      std::swap(now, next);
    }
    if (first) std::fill_n(s.out, tile_rows * dim, 0.0f);
    finish(tile, s);
  }
}

void attend_item(const AttentionCall& call, std::int32_t chunk_index, std::int32_t kv_head,
                 float* memory) {
  switch (call.kv_dtype) {
    case DType::f32:
      return attend_as<DType::f32>(call, chunk_index, kv_head, memory);
    case DType::f16:
      return attend_as<DType::f16>(call, chunk_index, kv_head, memory);
    case DType::bf16:
      return attend_as<DType::bf16>(call, chunk_index, kv_head, memory);
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
  return attention_rows * (2 * std::int64_t{head_dim} + attention_block + 4) +
         attention_block * std::int64_t{head_dim};
}

void attend(const AttentionCall& call, std::int32_t chunk, std::int32_t kv_head, float* scratch) {
  HWY_DYNAMIC_DISPATCH(attend_item)(call, chunk, kv_head, scratch);
}

void join_partials(const AttentionCall& call, std::int32_t q_begin, std::int32_t q_end) {
  HWY_DYNAMIC_DISPATCH(join_queries)(call, q_begin, q_end);
}

}  // namespace coppice::cpu
#endif
