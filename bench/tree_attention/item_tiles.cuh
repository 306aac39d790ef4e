// The kernel that runs a list of work items.
#pragma once

#include <cmath>

#include "item_kernel.h"
#include "kernels/cuda/attention_tiles.cuh"

namespace coppice::bench {

namespace flatten = coppice::cuda::flatten;

struct ItemArguments {
  ItemView view;
  const float* q;
  std::int64_t q_stride;
  const __nv_bfloat16* keys;
  const __nv_bfloat16* values;
  __nv_bfloat16* out;
  std::int32_t page_size;
  float score_scale;  ///< log2(e) * scale
};

/// As flatten::SharedTiles, with a mask per token instead of an interval.
template <typename V>
struct ItemTiles {
  uint4 keys[2][V::tile_tokens][V::vectors + 1];
  uint4 values[2][V::tile_tokens][V::vectors + 1];
  /// Bit i: the item's query i sees the token.
  std::uint64_t seen_by[3][V::tile_tokens];
  std::int32_t pool_row[3][V::tile_tokens];  ///< -1 where no query sees the token
};

struct ItemToken {
  std::uint64_t seen_by;
  std::int32_t pool_row;
};

/// A thread's rows g and g + 8 of its warp's 16.
template <typename V>
struct ItemRows {
  std::uint32_t q[V::head_dim / 16][4];
  float out[V::head_dim / 8][4] = {};
  float maximum[2] = {-INFINITY, -INFINITY};
  float sum[2] = {0.0f, 0.0f};  ///< this thread's columns only
};

/// Ones in bits [begin, end), 0 <= begin < end <= 64.
__device__ inline std::uint64_t bits_between(std::int32_t begin, std::int32_t end) {
  return (~std::uint64_t{0} >> (64 - (end - begin))) << begin;
}

/// This thread's token of the tile that starts at `tile_begin`; `all` has a bit per query.
__device__ inline ItemToken describe_item_token(const ItemArguments& arguments, const Item& item,
                                                std::int32_t tile_begin, std::uint64_t all) {
  const std::int32_t at = tile_begin + static_cast<std::int32_t>(threadIdx.x);
  if (at >= item.token_end) return {0, -1};
  const std::uint64_t seen_by =
      at < item.first_masked ? all : arguments.view.masks[item.masks + at - item.first_masked];
  if (seen_by == 0) return {0, -1};
  const KvSlot slot = arguments.view.slots[at];
  const std::int32_t page = slot / arguments.page_size;
  const std::int32_t place = slot - page * arguments.page_size;
  return {seen_by, (page * arguments.view.kv_heads + item.kv_head) * arguments.page_size + place};
}

/// Tokens without a pool row become zeros: 0 times what happens to lie there may be NaN.
template <typename V>
__device__ void copy_item_tile(const ItemArguments& arguments, ItemTiles<V>& shared, int stage,
                               int entries) {
#pragma unroll 2
  for (int i = 0; i < V::tile_tokens * V::vectors / V::threads; ++i) {
    const int index = i * V::threads + static_cast<int>(threadIdx.x);
    const int token = index / V::vectors;
    const int vector = index % V::vectors;
    const std::int32_t row = shared.pool_row[entries][token];
    const std::int64_t offset = row >= 0 ? std::int64_t{row} * V::head_dim + vector * 8 : 0;
    flatten::copy_or_clear(&shared.keys[stage][token][vector], arguments.keys + offset, row >= 0);
    flatten::copy_or_clear(&shared.values[stage][token][vector], arguments.values + offset,
                           row >= 0);
  }
}

template <typename V>
__device__ void load_item_queries(const ItemArguments& arguments, const Item& item,
                                  std::int32_t packed_row, ItemRows<V>& rows) {
  const std::int32_t group = arguments.view.group;
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const std::int32_t row = packed_row + 8 * half;
    const bool real = row < item.row_end;
    const float* source = arguments.q;
    if (real) {
      source += row / group * arguments.q_stride +
                std::int64_t{item.kv_head * group + row % group} * V::head_dim + column;
    }
#pragma unroll
    for (int k = 0; k < V::head_dim / 16; ++k) {
      float2 low{0.0f, 0.0f};
      float2 high{0.0f, 0.0f};
      if (real) {
        low = *reinterpret_cast<const float2*>(source + 16 * k);
        high = *reinterpret_cast<const float2*>(source + 16 * k + 8);
      }
      rows.q[k][half] = flatten::pack(low.x, low.y);
      rows.q[k][half + 2] = flatten::pack(high.x, high.y);
    }
  }
}

/// Adds the tokens [first_token, first_token + step_tokens) of a KV tile to a warp's rows, whose
/// queries have the bits `first_bit` and `second_bit`.
template <typename V>
__device__ void add_item_tokens(const ItemTiles<V>& shared, int stage, int entries, int first_token,
                                bool masked, int first_bit, int second_bit, float score_scale,
                                ItemRows<V>& rows) {
  constexpr int token_groups = flatten::step_tokens / 8;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  const auto& tile_keys = shared.keys[stage];
  const auto& tile_values = shared.values[stage];

  float scores[token_groups][4] = {};
#pragma unroll
  for (int k = 0; k < V::head_dim / 16; ++k) {
#pragma unroll
    for (int n = 0; n < token_groups / 2; ++n) {
      std::uint32_t keys[4];
      flatten::load_rows(
          keys, &tile_keys[first_token + n * 16 + lane / 16 * 8 + lane % 8][k * 2 + lane / 8 % 2]);
      flatten::multiply_add(scores[2 * n], rows.q[k], keys[0], keys[1]);
      flatten::multiply_add(scores[2 * n + 1], rows.q[k], keys[2], keys[3]);
    }
  }

  float maximum[2] = {rows.maximum[0], rows.maximum[1]};
#pragma unroll
  for (int n = 0; n < token_groups; ++n) {
#pragma unroll
    for (int i = 0; i < 4; ++i) scores[n][i] *= score_scale;
    if (masked) {
      const std::uint64_t* seen_by = &shared.seen_by[entries][first_token + n * 8 + lane % 4 * 2];
      if ((seen_by[0] >> first_bit & 1) == 0) scores[n][0] = -INFINITY;
      if ((seen_by[1] >> first_bit & 1) == 0) scores[n][1] = -INFINITY;
      if ((seen_by[0] >> second_bit & 1) == 0) scores[n][2] = -INFINITY;
      if ((seen_by[1] >> second_bit & 1) == 0) scores[n][3] = -INFINITY;
    }
    maximum[0] = fmaxf(maximum[0], fmaxf(scores[n][0], scores[n][1]));
    maximum[1] = fmaxf(maximum[1], fmaxf(scores[n][2], scores[n][3]));
  }
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    maximum[half] = fmaxf(maximum[half], __shfl_xor_sync(flatten::all_lanes, maximum[half], 1));
    maximum[half] = fmaxf(maximum[half], __shfl_xor_sync(flatten::all_lanes, maximum[half], 2));
    // A row that has seen nothing so far subtracts 0, not infinity from infinity.
    const float subtracted = maximum[half] == -INFINITY ? 0.0f : maximum[half];
    const float kept = flatten::power_of_two(rows.maximum[half] - subtracted);
    rows.maximum[half] = maximum[half];
    float sum = rows.sum[half] * kept;
#pragma unroll
    for (int n = 0; n < token_groups; ++n) {
#pragma unroll
      for (int i = 2 * half; i < 2 * half + 2; ++i) {
        scores[n][i] = flatten::power_of_two(scores[n][i] - subtracted);
        sum += scores[n][i];
      }
    }
    rows.sum[half] = sum;
#pragma unroll
    for (int n = 0; n < V::head_dim / 8; ++n) {
      rows.out[n][2 * half] *= kept;
      rows.out[n][2 * half + 1] *= kept;
    }
  }

#pragma unroll
  for (int k = 0; k < token_groups / 2; ++k) {
    const std::uint32_t weights[4] = {flatten::pack(scores[2 * k][0], scores[2 * k][1]),
                                      flatten::pack(scores[2 * k][2], scores[2 * k][3]),
                                      flatten::pack(scores[2 * k + 1][0], scores[2 * k + 1][1]),
                                      flatten::pack(scores[2 * k + 1][2], scores[2 * k + 1][3])};
#pragma unroll
    for (int n = 0; n < V::head_dim / 16; ++n) {
      std::uint32_t values[4];
      flatten::load_columns(
          values,
          &tile_values[first_token + k * 16 + lane / 8 % 2 * 8 + lane % 8][n * 2 + lane / 16]);
      flatten::multiply_add(rows.out[2 * n], weights, values[0], values[1]);
      flatten::multiply_add(rows.out[2 * n + 1], weights, values[2], values[3]);
    }
  }
}

/// Writes the thread's parts of its two rows, as output where the plan is direct.
template <typename V>
__device__ void store_item_rows(const ItemArguments& arguments, const Item& item,
                                std::int32_t packed_row, const ItemRows<V>& rows) {
  const std::int32_t group = arguments.view.group;
  const std::int32_t heads = group * arguments.view.kv_heads;
  const int column = static_cast<int>(threadIdx.x) % 4 * 2;
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    float sum = rows.sum[half];
    sum += __shfl_xor_sync(flatten::all_lanes, sum, 1);
    sum += __shfl_xor_sync(flatten::all_lanes, sum, 2);
    const std::int32_t row = packed_row + 8 * half;
    if (row >= item.row_end) continue;
    const std::int32_t query = row / group;
    const std::int32_t head = item.kv_head * group + row % group;
    const float inverse = sum == 0.0f ? 0.0f : 1.0f / sum;
    if (arguments.view.direct) {
      __nv_bfloat16* out =
          arguments.out + (std::int64_t{query} * heads + head) * V::head_dim + column;
#pragma unroll
      for (int n = 0; n < V::head_dim / 8; ++n) {
        *reinterpret_cast<std::uint32_t*>(out + 8 * n) =
            flatten::pack(rows.out[n][2 * half] * inverse, rows.out[n][2 * half + 1] * inverse);
      }
      continue;
    }
    const std::int64_t partial = std::int64_t{query + item.partial_shift} * heads + head;
    if (column == 0) {
      arguments.view.partial_lse[partial] =
          sum == 0.0f ? -INFINITY : rows.maximum[half] + log2f(sum);
    }
    if (sum == 0.0f) continue;
    float* out = arguments.view.partial_out + partial * V::head_dim + column;
#pragma unroll
    for (int n = 0; n < V::head_dim / 8; ++n) {
      *reinterpret_cast<float2*>(out + 8 * n) =
          float2{rows.out[n][2 * half] * inverse, rows.out[n][2 * half + 1] * inverse};
    }
  }
}

/// Grid: a block per item.
template <int warps>
__global__ void __launch_bounds__(flatten::Variant<head_dim, warps>::threads,
                                  flatten::Variant<head_dim, warps>::blocks_per_sm)
    run_items(ItemArguments arguments) {
  using V = flatten::Variant<head_dim, warps>;
  extern __shared__ uint4 item_shared[];
  auto& shared = *reinterpret_cast<ItemTiles<V>*>(item_shared);
  const Item item = arguments.view.items[blockIdx.x];
  const std::int32_t group = arguments.view.group;
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const std::int32_t first_query = item.row_begin / group;
  const std::int32_t warp_row = item.row_begin + thread / 32 * 16;
  const std::int32_t warp_end = min(warp_row + 16, item.row_end);
  const std::int32_t packed_row = warp_row + lane / 4;
  const std::uint64_t all = bits_between(0, (item.row_end - 1) / group + 1 - first_query);
  const std::uint64_t warp_bits =
      warp_row < warp_end
          ? bits_between(warp_row / group - first_query, (warp_end - 1) / group + 1 - first_query)
          : 0;
  const int first_bit = packed_row / group - first_query;
  const int second_bit = (packed_row + 8) / group - first_query;

  const auto describe = [&](int tile) {
    return describe_item_token(arguments, item, item.token_begin + tile * V::tile_tokens, all);
  };
  const auto keep = [&](const ItemToken& token, int entries) {
    shared.seen_by[entries][thread] = token.seen_by;
    shared.pool_row[entries][thread] = token.pool_row;
  };
  const int tiles = (item.token_end - item.token_begin + V::tile_tokens - 1) / V::tile_tokens;
  if (thread < V::tile_tokens) {
    keep(describe(0), 0);
    keep(describe(1), 1);
  }
  __syncthreads();
  copy_item_tile(arguments, shared, 0, 0);
  ItemRows<V> rows;
  load_item_queries(arguments, item, packed_row, rows);

  for (int tile = 0; tile < tiles; ++tile) {
    flatten::wait_for_copies();
    // This tile has arrived, the next one's descriptions are written, and nobody reads the
    // previous tile any more.
    __syncthreads();
    ItemToken token{};
    const bool describes = tile + 2 < tiles && thread < V::tile_tokens;
    if (describes) token = describe(tile + 2);
    if (tile + 1 < tiles) copy_item_tile(arguments, shared, (tile + 1) % 2, (tile + 1) % 3);
    if (describes) keep(token, (tile + 2) % 3);
#pragma unroll 1
    for (int first = 0; first < V::tile_tokens; first += flatten::step_tokens) {
      const std::uint64_t seen_by = shared.seen_by[tile % 3][first + lane] & warp_bits;
      if (!__any_sync(flatten::all_lanes, seen_by != 0)) continue;
      const bool masked = __any_sync(flatten::all_lanes, seen_by != warp_bits);
      add_item_tokens(shared, tile % 2, tile % 3, first, masked, first_bit, second_bit,
                      arguments.score_scale, rows);
    }
  }
  store_item_rows(arguments, item, packed_row, rows);
}

}  // namespace coppice::bench
