// One work item of tree attention, run by a block: KV head and row tile over a list of tokens. The
// kernels that take items off different lists share it.
//
// `Item` says what the block has to know of an item; all threads of the block hold equal ones.
//   SeenBy, Queries        which of the row tile's queries see a token (8 bytes, SeenBy{} for
//                          none), and which ones a warp has
//   first_row()            of the row tile's packed rows
//   row_end()              packed rows from here on are padding
//   query_of(row), head_of(row)
//   tokens()               places of its tokens in the list; may hold barriers
//   token(operands, at)    TokenEntry of the one at a place
//   former_end()           tokens before this place were written by former passes
//   queries_of(row, count) those of count packed rows from `row` on
//   any_sees(seen_by, queries), all_see(seen_by, queries)
//   Mark, mark_of(row)     of the row's query, for sees(seen_by, mark)
//   direct()               the item's results are the output: there is nothing to join
//   partial(query, head)   otherwise, the place of its partial result
#pragma once

#include <cmath>

#include "kernels/cuda/attention/attention_tiles.cuh"
#include "kernels/cuda/error.h"
#include "kernels/cuda/kernel_order.cuh"

namespace coppice::cuda::flatten {

/// What an item says of a token.
template <typename SeenBy>
struct TokenEntry {
  SeenBy seen_by;
  std::int32_t pool_row;  ///< of pool_row_of(); -1 where none of the row tile's queries sees it
};

/// Where the key and value of a token lie, in rows of head_dim from the layer's first.
__device__ inline std::int32_t pool_row_of(const Operands& operands, std::int32_t kv_head,
                                           KvSlot slot) {
  const std::int32_t page = slot / operands.page_size;
  const std::int32_t place = slot - page * operands.page_size;
  return (page * operands.kv_heads + kv_head) * operands.page_size + place;
}

/// Starts the copies of one KV tile. Tokens without a pool row become zeros: their weights are
/// 0, and 0 times what happens to lie there may be NaN.
template <typename V, typename SeenBy>
__device__ void start_copies(const Operands& operands, SharedTiles<V, SeenBy>& shared, int stage,
                             int entries) {
#pragma unroll 2
  for (int i = 0; i < V::tile_tokens * V::vectors / V::threads; ++i) {
    const int index = i * V::threads + static_cast<int>(threadIdx.x);
    const int token = index / V::vectors;
    const int vector = index % V::vectors;
    const std::int32_t row = shared.pool_row[entries][token];
    const bool there = row >= 0 && vector * 8 < V::head_dim;
    const std::int64_t offset = there ? std::int64_t{row} * V::head_dim + vector * 8 : 0;
    copy_or_clear(&shared.keys[stage][token][vector], operands.keys + offset, there);
    copy_or_clear(&shared.values[stage][token][vector], operands.values + offset, there);
  }
}

/// A warp's 16 packed rows: this thread has rows g and g + 8 of them.
template <typename V>
struct WarpRows {
  std::uint32_t q[V::kept_queries][4];
  float out[V::padded_dim / 8][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};  ///< this thread's columns only
};

/// Queries as fragments, straight from global memory: the four lanes of a row read 16 bytes. Past
/// the item's last row, that one again.
template <typename V, typename Item>
__device__ void load_queries(const Operands& operands, const Item& item, std::int32_t packed_row,
                             SharedTiles<V, typename Item::SeenBy>& shared, WarpRows<V>& rows) {
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t row = min(packed_row + 8 * half, item.row_end() - 1);
    const __nv_bfloat16* source =
        operands.query(item.query_of(row), item.head_of(row), V::head_dim) + column;
#pragma unroll
    for (int k = 0; k < V::products; ++k) {
      const auto low = *reinterpret_cast<const std::uint32_t*>(source + 16 * k);
      const bool whole = 16 * k + 8 < V::head_dim;
      const auto high = whole ? *reinterpret_cast<const std::uint32_t*>(source + 16 * k + 8) : 0u;
      if (k < V::kept_queries) {
        rows.q[k][half] = low;
        rows.q[k][half + 2] = high;
      } else if constexpr (V::kept_queries < V::products) {
        auto& stored = shared.queries[k - V::kept_queries][threadIdx.x];
        (half == 0 ? stored.x : stored.y) = low;
        (half == 0 ? stored.z : stored.w) = high;
      }
    }
  }
}

/// Adds the tokens [first_token, first_token + step_tokens) of a KV tile to a warp's rows.
/// `first_mark` and `second_mark` are those of the thread's two rows.
template <typename Item, typename V>
__device__ void attend_to_tokens(const SharedTiles<V, typename Item::SeenBy>& shared, int stage,
                                 int entries, int first_token, bool masked,
                                 const typename Item::Mark& first_mark,
                                 const typename Item::Mark& second_mark, const Operands& operands,
                                 WarpRows<V>& rows) {
  constexpr int token_groups = step_tokens / 8;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto& tile_keys = shared.keys[stage];
  const auto& tile_values = shared.values[stage];

  float scores[token_groups][4] = {};
  const auto multiply_keys = [&](int k, const std::uint32_t(&queries)[4]) {
#pragma unroll
    for (int n = 0; n < token_groups / 2; ++n) {
      std::uint32_t keys[4];
      load_rows(keys,
                &tile_keys[first_token + n * 16 + lane / 16 * 8 + lane % 8][k * 2 + lane / 8 % 2]);
      multiply_add(scores[2 * n], queries, keys[0], keys[1]);
      multiply_add(scores[2 * n + 1], queries, keys[2], keys[3]);
    }
  };
#pragma unroll
  for (int k = 0; k < V::kept_queries; ++k) multiply_keys(k, rows.q[k]);
  if constexpr (V::kept_queries < V::products) {
#pragma unroll
    for (int k = V::kept_queries; k < V::products; ++k) {
      const uint4 stored = shared.queries[k - V::kept_queries][threadIdx.x];
      multiply_keys(k, {stored.x, stored.y, stored.z, stored.w});
    }
  }

  float score_scale = operands.score_scale;
  if (V::window_or_cap && operands.soft_cap > 0.0f) {
    hyperbolic_tangents(*reinterpret_cast<float(*)[4 * token_groups]>(scores),
                        operands.cap_argument);
    score_scale = operands.soft_cap;
  }
  float maximum[2] = {rows.maximum[0], rows.maximum[1]};
#pragma unroll
  for (int n = 0; n < token_groups; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] *= score_scale;
    if (masked) {
      const auto two = *reinterpret_cast<const Neighbours<typename Item::SeenBy>*>(
          &shared.seen_by[entries][first_token + n * 8 + lane % 4 * 2]);
      if (!Item::sees(two.first, first_mark)) scores[n][0] = -INFINITY;
      if (!Item::sees(two.second, first_mark)) scores[n][1] = -INFINITY;
      if (!Item::sees(two.first, second_mark)) scores[n][2] = -INFINITY;
      if (!Item::sees(two.second, second_mark)) scores[n][3] = -INFINITY;
    }
    maximum[0] = fmaxf(maximum[0], fmaxf(scores[n][0], scores[n][1]));
    maximum[1] = fmaxf(maximum[1], fmaxf(scores[n][2], scores[n][3]));
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    maximum[half] = fmaxf(maximum[half], __shfl_xor_sync(all_lanes, maximum[half], 1));
    maximum[half] = fmaxf(maximum[half], __shfl_xor_sync(all_lanes, maximum[half], 2));
    // A row that has seen nothing so far subtracts 0, not infinity from infinity.
    const float subtracted = maximum[half] == -INFINITY ? 0.0f : maximum[half];
    const float kept = power_of_two(rows.maximum[half] - subtracted);
    rows.maximum[half] = maximum[half];
    float sum = rows.sum[half] * kept;
#pragma unroll
    for (int n = 0; n < token_groups; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[n][i] = power_of_two(scores[n][i] - subtracted);
        sum += scores[n][i];
      }
    }
    rows.sum[half] = sum;
#pragma unroll
    for (int n = 0; n < V::padded_dim / 8; ++n) {
      rows.out[n][2 * half] *= kept;
      rows.out[n][2 * half + 1] *= kept;
    }
  }

#pragma unroll
  for (int k = 0; k < token_groups / 2; ++k) {
    const std::uint32_t weights[4] = {pack(scores[2 * k][0], scores[2 * k][1]),
                                      pack(scores[2 * k][2], scores[2 * k][3]),
                                      pack(scores[2 * k + 1][0], scores[2 * k + 1][1]),
                                      pack(scores[2 * k + 1][2], scores[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < V::padded_dim / 16; ++n) {
      std::uint32_t values[4];
      load_columns(
          values,
          &tile_values[first_token + k * 16 + lane / 8 % 2 * 8 + lane % 8][n * 2 + lane / 16]);
      multiply_add(rows.out[2 * n], weights, values[0], values[1]);
      multiply_add(rows.out[2 * n + 1], weights, values[2], values[3]);
    }
  }
}

/// Writes the thread's parts of its two rows, as output or as partial results.
template <typename V, typename Item>
__device__ void store_rows(const Operands& operands, const Item& item, std::int32_t packed_row,
                           const WarpRows<V>& rows) {
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(all_lanes, sum, 1);
    sum += __shfl_xor_sync(all_lanes, sum, 2);
    const std::int32_t row = packed_row + 8 * half;
    if (row >= item.row_end()) continue;
    const std::int32_t query = item.query_of(row);
    const std::int32_t head = item.head_of(row);
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    if (item.direct()) {
      __nv_bfloat16* out =
          operands.out + (std::int64_t{query} * operands.heads() + head) * V::head_dim + column;
#pragma unroll
      for (int n = 0; n < V::head_dim / 8; ++n) {
        *reinterpret_cast<std::uint32_t*>(out + 8 * n) =
            pack(rows.out[n][2 * half] * inverse, rows.out[n][2 * half + 1] * inverse);
      }
      continue;
    }
    const std::int64_t partial = item.partial(query, head);
    if (column == 0) {
      operands.partial_lse[partial] = sum == 0.0f ? -INFINITY : rows.maximum[half] + log2f(sum);
    }
    if (sum == 0.0f) continue;
    float* out = operands.partial_out + partial * V::head_dim + column;
#pragma unroll
    for (int n = 0; n < V::head_dim / 8; ++n) {
      *reinterpret_cast<float2*>(out + 8 * n) =
          float2{rows.out[n][2 * half] * inverse, rows.out[n][2 * half + 1] * inverse};
    }
  }
}

/// Runs the item. Former kernels have ended when it returns.
template <typename V, typename Item>
__device__ void run_item(const Operands& operands, const Item& item,
                         SharedTiles<V, typename Item::SeenBy>& shared) {
  using Entry = TokenEntry<typename Item::SeenBy>;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const std::int32_t warp_row = item.first_row() + thread / 32 * 16;
  const std::int32_t packed_row = warp_row + lane / 4;  // the first of this thread's two
  const auto warp_queries = item.queries_of(warp_row, 16);
  const auto first_mark = item.mark_of(packed_row);
  const auto second_mark = item.mark_of(packed_row + 8);
  WarpRows<V> rows;

  __syncthreads();  // the block may still be reading the last item's tiles
  const IndexRange span = item.tokens();
  if (!span.empty()) {
    const auto describe = [&](int tile) -> Entry {
      const std::int32_t at = span.begin + tile * V::tile_tokens + thread;
      if (at >= span.end) return {{}, -1};
      return item.token(operands, at);
    };
    const auto keep = [&](const Entry& entry, int entries) {
      shared.seen_by[entries][thread] = entry.seen_by;
      shared.pool_row[entries][thread] = entry.pool_row;
    };
    const int tiles = (span.end - span.begin + V::tile_tokens - 1) / V::tile_tokens;
    if (thread < V::tile_tokens) {
      keep(describe(0), 0);
      keep(describe(1), 1);
    }
    __syncthreads();
    // Keys and values of former passes may be read early; all else waits.
    if (span.begin + V::tile_tokens > item.former_end()) wait_for_former_kernels();
    start_copies(operands, shared, 0, 0);
    wait_for_former_kernels();
    load_queries(operands, item, packed_row, shared, rows);

    for (int tile = 0; tile < tiles; ++tile) {
      wait_for_copies();
      // This tile has arrived, the next one's descriptions are written, and nobody reads the
      // previous tile any more.
      __syncthreads();
      Entry entry{};
      const bool describes = tile + 2 < tiles && thread < V::tile_tokens;
      if (describes) entry = describe(tile + 2);
      if (tile + 1 < tiles) start_copies(operands, shared, (tile + 1) % 2, (tile + 1) % 3);
      if (describes) keep(entry, (tile + 2) % 3);
#pragma unroll 1
      for (int first = 0; first < V::tile_tokens; first += step_tokens) {
        const auto seen_by = shared.seen_by[tile % 3][first + lane];
        if (!__any_sync(all_lanes, Item::any_sees(seen_by, warp_queries))) continue;
        const bool masked = __any_sync(all_lanes, !Item::all_see(seen_by, warp_queries));
        attend_to_tokens<Item>(shared, tile % 2, tile % 3, first, masked, first_mark, second_mark,
                               operands, rows);
      }
    }
  }
  wait_for_former_kernels();
  store_rows(operands, item, packed_row, rows);
}

/// Once per device, for a kernel that calls run_item(): it may be launched with `bytes` of dynamic
/// shared memory, and finds as much of a multiprocessor's memory as there is.
template <std::size_t bytes, typename Arguments>
void allow_shared_memory(void (*kernel)(Arguments)) {
  static_assert(bytes <= 99 * 1024);
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes),
        "shared memory of attention");
  check(cudaFuncSetAttribute(kernel, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "shared memory carveout of attention");
}

}  // namespace coppice::cuda::flatten
