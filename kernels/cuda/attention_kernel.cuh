// The kernel that runs the work items of DeFT-Flatten attention.
#pragma once

#include <climits>
#include <cmath>

#include "kernels/cuda/attention_tiles.cuh"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass_view.h"

namespace coppice::cuda::flatten {

struct Arguments {
  PassView pass;
  const float* q;
  std::int64_t q_stride;
  const __nv_bfloat16* keys;    ///< first page of the layer
  const __nv_bfloat16* values;  ///< first page of the layer
  std::int32_t page_size;
  std::int32_t kv_heads;
  std::int32_t group;
  float score_scale;  ///< log2(e) * scale
  __nv_bfloat16* out;
  float* partial_out;
  float* partial_lse;
};

__device__ inline FlattenPlan plan_of(const PassScalars& scalars, std::int32_t kv_heads,
                                      std::int32_t group, std::int32_t tile_rows) {
  FlattenPlan plan;
  plan.rows = scalars.rows;
  plan.group = group;
  plan.kv_heads = kv_heads;
  plan.tile_rows = tile_rows;
  plan.prefix = scalars.prefix;
  plan.tail = scalars.tail;
  plan.chunk_tokens = scalars.chunk_tokens;
  plan.chunks = scalars.chunks;
  return plan;
}

/// The span of `chunk` outside of which `queries` see nothing. Holds a barrier.
template <typename V>
__device__ IndexRange visible_span(const Arguments& arguments, const FlattenPlan& plan,
                                   IndexRange chunk, IndexRange queries, SharedTiles<V>& shared) {
  if (chunk.end <= plan.prefix) return chunk;
  std::int32_t begin = INT_MAX;
  std::int32_t end = 0;
  const std::int32_t tail_begin = chunk.begin > plan.prefix ? chunk.begin : plan.prefix;
  for (std::int32_t at = tail_begin + static_cast<std::int32_t>(threadIdx.x); at < chunk.end;
       at += V::threads) {
    if (queries_that_see(arguments.pass.tail[at - plan.prefix], queries).empty()) continue;
    begin = min(begin, at);
    end = at + 1;
  }
  begin = __reduce_min_sync(all_lanes, begin);
  end = __reduce_max_sync(all_lanes, end);
  if (threadIdx.x % 32 == 0) shared.visible[threadIdx.x / 32] = {begin, end};
  __syncthreads();
  for (int warp = 0; warp < V::warps; ++warp) {
    begin = min(begin, shared.visible[warp].begin);
    end = max(end, shared.visible[warp].end);
  }
  if (chunk.begin < plan.prefix) {
    begin = chunk.begin;
    end = max(end, plan.prefix);
  }
  return begin < end ? IndexRange{begin, end} : IndexRange{};
}

struct TokenEntry {
  int2 seen_by;
  std::int32_t pool_row;
};

/// What this thread's token of the tile that starts at `tile_begin` is to `queries`.
__device__ inline TokenEntry describe_token(const Arguments& arguments, const FlattenPlan& plan,
                                            std::int32_t kv_head, std::int32_t tile_begin,
                                            std::int32_t span_end, IndexRange queries) {
  const std::int32_t at = tile_begin + static_cast<std::int32_t>(threadIdx.x);
  if (at >= span_end) return {{0, 0}, -1};
  const VisibleKv token = plan.token(arguments.pass.prefix_slots, arguments.pass.tail, at);
  const IndexRange seen_by = queries_that_see(token, queries);
  if (seen_by.empty()) return {{0, 0}, -1};
  const std::int32_t page = token.slot / arguments.page_size;
  const std::int32_t place = token.slot - page * arguments.page_size;
  return {{seen_by.begin, seen_by.end},
          (page * arguments.kv_heads + kv_head) * arguments.page_size + place};
}

/// Starts the copies of one KV tile. Tokens without a pool row become zeros: their weights are
/// 0, and 0 times what happens to lie there may be NaN.
template <typename V>
__device__ void start_copies(const Arguments& arguments, SharedTiles<V>& shared, int stage,
                             int entries) {
#pragma unroll 2
  for (int i = 0; i < V::tile_tokens * V::vectors / V::threads; ++i) {
    const int index = i * V::threads + static_cast<int>(threadIdx.x);
    const int token = index / V::vectors;
    const int vector = index % V::vectors;
    const std::int32_t row = shared.pool_row[entries][token];
    const bool there = row >= 0 && vector * 8 < V::head_dim;
    const std::int64_t offset = there ? std::int64_t{row} * V::head_dim + vector * 8 : 0;
    copy_or_clear(&shared.keys[stage][token][vector], arguments.keys + offset, there);
    copy_or_clear(&shared.values[stage][token][vector], arguments.values + offset, there);
  }
}

/// A warp's 16 packed rows: this thread has rows g and g + 8 of them.
template <typename V>
struct WarpRows {
  std::uint32_t q[V::padded_dim / 16][4];
  float out[V::padded_dim / 8][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};  ///< this thread's columns only
};

/// Queries as fragments, straight from global memory: the four lanes of a row read 32 bytes.
template <typename V>
__device__ void load_queries(const Arguments& arguments, const FlattenPlan& plan,
                             std::int32_t kv_head, std::int32_t packed_row, WarpRows<V>& rows) {
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t row = packed_row + 8 * half;
    const bool real = row < plan.packed_rows();
    const float* source = arguments.q;
    if (real) {
      source += plan.query_of(row) * arguments.q_stride +
                std::int64_t{plan.head_of(kv_head, row)} * V::head_dim + column;
    }
#pragma unroll
    for (int k = 0; k < V::padded_dim / 16; ++k) {
      float2 low{0.0f, 0.0f};
      float2 high{0.0f, 0.0f};
      if (real) {
        low = *reinterpret_cast<const float2*>(source + 16 * k);
        if (16 * k + 8 < V::head_dim) high = *reinterpret_cast<const float2*>(source + 16 * k + 8);
      }
      rows.q[k][half] = pack(low.x, low.y);
      rows.q[k][half + 2] = pack(high.x, high.y);
    }
  }
}

/// Adds the tokens [first_token, first_token + step_tokens) of a KV tile to a warp's rows.
/// `first_query` and `second_query` are those of the thread's two rows.
template <typename V>
__device__ void attend_to_tokens(const SharedTiles<V>& shared, int stage, int entries,
                                 int first_token, bool masked, std::int32_t first_query,
                                 std::int32_t second_query, float score_scale, WarpRows<V>& rows) {
  constexpr int token_groups = step_tokens / 8;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto& tile_keys = shared.keys[stage];
  const auto& tile_values = shared.values[stage];

  float scores[token_groups][4] = {};
#pragma unroll
  for (int k = 0; k < V::padded_dim / 16; ++k) {
#pragma unroll
    for (int n = 0; n < token_groups / 2; ++n) {
      std::uint32_t keys[4];
      load_rows(keys,
                &tile_keys[first_token + n * 16 + lane / 16 * 8 + lane % 8][k * 2 + lane / 8 % 2]);
      multiply_add(scores[2 * n], rows.q[k], keys[0], keys[1]);
      multiply_add(scores[2 * n + 1], rows.q[k], keys[2], keys[3]);
    }
  }

  float maximum[2] = {rows.maximum[0], rows.maximum[1]};
#pragma unroll
  for (int n = 0; n < token_groups; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] *= score_scale;
    if (masked) {
      const int4 seen_by = *reinterpret_cast<const int4*>(
          &shared.seen_by[entries][first_token + n * 8 + lane % 4 * 2]);
      if (first_query < seen_by.x || first_query >= seen_by.y) scores[n][0] = -INFINITY;
      if (first_query < seen_by.z || first_query >= seen_by.w) scores[n][1] = -INFINITY;
      if (second_query < seen_by.x || second_query >= seen_by.y) scores[n][2] = -INFINITY;
      if (second_query < seen_by.z || second_query >= seen_by.w) scores[n][3] = -INFINITY;
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

/// Writes the thread's parts of its two rows: to `out` where there is one chunk, else as partial
/// results.
template <typename V>
__device__ void store_rows(const Arguments& arguments, const FlattenPlan& plan, FlattenItem item,
                           std::int32_t packed_row, const WarpRows<V>& rows) {
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(all_lanes, sum, 1);
    sum += __shfl_xor_sync(all_lanes, sum, 2);
    const std::int32_t row = packed_row + 8 * half;
    if (row >= plan.packed_rows()) continue;
    const std::int32_t query = plan.query_of(row);
    const std::int32_t head = plan.head_of(item.kv_head, row);
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    if (plan.chunks == 1) {
      __nv_bfloat16* out =
          arguments.out + (std::int64_t{query} * plan.heads() + head) * V::head_dim + column;
#pragma unroll
      for (int n = 0; n < V::head_dim / 8; ++n) {
        *reinterpret_cast<std::uint32_t*>(out + 8 * n) =
            pack(rows.out[n][2 * half] * inverse, rows.out[n][2 * half + 1] * inverse);
      }
      continue;
    }
    const std::int64_t partial = plan.partial(query, head, item.chunk);
    if (column == 0) {
      arguments.partial_lse[partial] = sum == 0.0f ? -INFINITY : rows.maximum[half] + log2f(sum);
    }
    if (sum == 0.0f) continue;
    float* out = arguments.partial_out + partial * V::head_dim + column;
#pragma unroll
    for (int n = 0; n < V::head_dim / 8; ++n) {
      *reinterpret_cast<float2*>(out + 8 * n) =
          float2{rows.out[n][2 * half] * inverse, rows.out[n][2 * half + 1] * inverse};
    }
  }
}

/// The first of this thread's two packed rows.
template <typename V>
__device__ std::int32_t packed_row_of(FlattenItem item) {
  const int thread = static_cast<int>(threadIdx.x);
  return item.row_tile * V::tile_rows + thread / 32 * 16 + thread % 32 / 4;
}

/// Attends to the item's tokens. Former kernels have ended when it returns.
template <typename V>
__device__ void compute_item(const Arguments& arguments, FlattenItem item, SharedTiles<V>& shared,
                             WarpRows<V>& rows) {
  const FlattenPlan& plan = shared.plan;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const std::int32_t tile_row = item.row_tile * V::tile_rows;
  const std::int32_t warp_row = tile_row + thread / 32 * 16;
  const std::int32_t packed_row = packed_row_of<V>(item);
  const IndexRange tile_queries = plan.queries_of(tile_row, V::tile_rows);
  const IndexRange warp_queries = plan.queries_of(warp_row, 16);
  const std::int32_t first_query = plan.query_of(packed_row);
  const std::int32_t second_query = plan.query_of(packed_row + 8);

  __syncthreads();  // the block may still be reading the last item's tiles
  const IndexRange span =
      visible_span(arguments, plan, plan.tokens_of(item.chunk), tile_queries, shared);
  if (!span.empty()) {
    const auto describe = [&](int tile) {
      return describe_token(arguments, plan, item.kv_head, span.begin + tile * V::tile_tokens,
                            span.end, tile_queries);
    };
    const auto keep = [&](const TokenEntry& entry, int entries) {
      shared.seen_by[entries][thread] = entry.seen_by;
      shared.pool_row[entries][thread] = entry.pool_row;
    };
    const int tiles = (span.end - span.begin + V::tile_tokens - 1) / V::tile_tokens;
    if (thread < V::tile_tokens) {
      keep(describe(0), 0);
      keep(describe(1), 1);
    }
    __syncthreads();
    // The prefix's keys and values are of former passes; all else waits.
    if (span.begin + V::tile_tokens > plan.prefix) wait_for_former_kernels();
    start_copies(arguments, shared, 0, 0);
    wait_for_former_kernels();
    load_queries(arguments, plan, item.kv_head, packed_row, rows);

    for (int tile = 0; tile < tiles; ++tile) {
      wait_for_copies();
      // This tile has arrived, the next one's descriptions are written, and nobody reads the
      // previous tile any more.
      __syncthreads();
      TokenEntry entry{};
      const bool describes = tile + 2 < tiles && thread < V::tile_tokens;
      if (describes) entry = describe(tile + 2);
      if (tile + 1 < tiles) start_copies(arguments, shared, (tile + 1) % 2, (tile + 1) % 3);
      if (describes) keep(entry, (tile + 2) % 3);
#pragma unroll 1
      for (int first = 0; first < V::tile_tokens; first += step_tokens) {
        const int2 seen_by = shared.seen_by[tile % 3][first + lane];
        if (!__any_sync(all_lanes, !intersection({seen_by.x, seen_by.y}, warp_queries).empty())) {
          continue;
        }
        const bool masked =
            __any_sync(all_lanes, seen_by.x > warp_queries.begin || seen_by.y < warp_queries.end);
        attend_to_tokens(shared, tile % 2, tile % 3, first, masked, first_query, second_query,
                         arguments.score_scale, rows);
      }
    }
  }
  wait_for_former_kernels();
}

template <typename V>
__device__ void run_item(const Arguments& arguments, FlattenItem item, SharedTiles<V>& shared) {
  WarpRows<V> rows;
  compute_item(arguments, item, shared, rows);
  store_rows(arguments, shared.plan, item, packed_row_of<V>(item), rows);
}

/// Grid: any number of blocks, which take items in turn. Before it waits for former kernels a block
/// reads what no kernel of the pass writes: the plan, slots, keys and values of the prefix.
template <int head_dim, int warps>
__global__ void __launch_bounds__(Variant<head_dim, warps>::threads,
                                  Variant<head_dim, warps>::blocks_per_sm)
    attend(Arguments arguments) {
  let_next_kernel_begin();
  using V = Variant<head_dim, warps>;
  extern __shared__ uint4 dynamic_shared[];
  auto& shared = *reinterpret_cast<SharedTiles<V>*>(dynamic_shared);
  if (threadIdx.x == 0) {
    shared.plan =
        plan_of(*arguments.pass.scalars, arguments.kv_heads, arguments.group, V::tile_rows);
  }
  __syncthreads();
  const std::int32_t items = shared.plan.items();
  for (auto index = static_cast<std::int32_t>(blockIdx.x); index < items;
       index += static_cast<std::int32_t>(gridDim.x)) {
    run_item(arguments, shared.plan.item(index), shared);
  }
}

}  // namespace coppice::cuda::flatten
