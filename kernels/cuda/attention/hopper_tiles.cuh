// What the parts of the Hopper attention share: sizes, shared memory, and its hand-over between
// the warps that copy (one or two producers) and those that compute (two consumers), a warpgroup
// each.
//
// Each stage has keys and values of one KV tile. Filled: its producer's copies have landed, and,
// for keys, the tile's description is written. Emptied: every warp that reads the values has done
// so; every lane, for keys, as it has read the former tile's description, too. Descriptions have
// two slots more than there are stages: a consumer reads tile j's description before it gives back
// the keys of its next tile, j + 1 or j + 2, and who writes that of tile j + stages + 2 waits for
// those of tile j + 2 before.
#pragma once

#include <cmath>

#include "kernels/cuda/attention/attention_operands.h"
#include "kernels/cuda/attention/hopper_ptx.cuh"
#include "kernels/cuda/attention/range_plan.h"
#include "kernels/cuda/kernel_order.cuh"
#include "kernels/cuda/pass/pass_view.h"

namespace coppice::cuda::hopper {

inline constexpr int consumers = 2;
inline constexpr int consumer_threads = consumers * warpgroup_threads;
inline constexpr int producer_warps = 4;
inline constexpr int page_box = range_box;
/// Hardware barriers; 0 is that of the whole block.
enum : int { ping_pong_barrier = 1, rows_barrier = 3, both_barrier = 5 };

struct Arguments : Operands {
  /// Keys and values of all layers as [rows][head_dim], by boxes of page_box rows: whole, or for
  /// kernels with a window or a soft cap of 64 columns.
  CUtensorMap key_boxes, value_boxes;
  std::int32_t first_pool_row;  ///< of the layer
  bool has_boxes;               ///< whether pages are made of whole boxes
  PassView pass;
  std::int32_t page_shift;      ///< where page_size is a power of two, else -1
  std::uint32_t group_inverse;  ///< ceil(2^32 / group)
  unsigned* tickets;
  std::int32_t head_dim;  ///< for kernels with a window or a soft cap; at most theirs
};

/// A kernel for row tiles of 64 has both consumers compute the same rows, over KV tiles in turn;
/// one for row tiles of 128 has them compute 64 rows each, over the same KV tiles, of which each
/// may leave out those that its rows do not see. For row tiles of 16 see hopper_narrow.cuh.
/// `window_or_cap`: it obeys windows and soft caps, and takes smaller heads too.
template <int head_dim_, int tile_rows_, int tile_tokens_, bool window_or_cap_ = false,
          bool leaves_out_ = false>
struct Variant {
  static constexpr bool window_or_cap = window_or_cap_;
  static constexpr bool leaves_out = leaves_out_;
  static_assert(!window_or_cap || !leaves_out);  // one lane copies whole boxes there
  static constexpr int head_dim = head_dim_;
  static constexpr int tile_rows = tile_rows_;
  static constexpr int tile_tokens = tile_tokens_;
  /// With half KV tiles there are registers for queries, unless heads are large.
  static constexpr bool keeps_queries = tile_tokens == range_half_tokens && head_dim <= 128;
  /// As many as shared memory has room for, beside queries and, with a window or a soft cap, where
  /// windows end.
  static constexpr int stages = head_dim > 128  ? (tile_rows == range_wide_tile ? 2 : 3)
                                : window_or_cap ? 320 / tile_tokens
                                                : 384 / tile_tokens;
  static constexpr int descriptions = stages + 2;
  /// With few rows, products take less time than a producer's instructions for a KV tile: two take
  /// turns. With more rows, or half KV tiles, one keeps up, and a second only makes first keys come
  /// later.
  static constexpr int producers =
      !window_or_cap && tile_rows <= range_half_tile && tile_tokens == range_tile_tokens ? 2 : 1;
  /// Threads of a block: the first producer's, the consumers', then the second producer's.
  static constexpr int threads = (producers + consumers) * warpgroup_threads;
  static constexpr int warp_tokens = tile_tokens / producer_warps;  ///< of a KV tile
  static constexpr bool shares_rows = tile_rows == range_half_tile;
  /// Who take KV tiles alternately, from piece to piece: the consumers, or both of them as one.
  static constexpr int takers = shares_rows ? consumers : 1;
  /// Who sees a token is said for so many parts of a row tile.
  static constexpr int views = leaves_out ? consumers : 1;
  static constexpr int view_rows = tile_rows / views;
  static constexpr int panels = head_dim / 64;
  /// In keys and values, how far apart panels and, in a panel, each eight rows lie: eight rows of
  /// all panels follow one another, so that one copy takes a box of whole heads. Kernels with a
  /// window or a soft cap have a panel behind the other and take a box by panels, as past smaller
  /// heads they need zeros.
  static constexpr int panel_bytes = window_or_cap ? tile_tokens * 128 : 1024;
  static constexpr int eight_rows_bytes = window_or_cap ? 1024 : panels * 1024;
  static constexpr int box_bytes = page_box / 8 * eight_rows_bytes;  ///< from a box to the next
  static constexpr int box_copies = window_or_cap ? panels : 1;
  static constexpr int query_panel_bytes = tile_rows * 128;  ///< of queries
  static constexpr int vectors = head_dim / 8;               ///< of 16 bytes in a row
  static constexpr int readers = shares_rows ? 4 : 8;        ///< warps that read a KV tile
  static constexpr int out_registers = head_dim / 2;
  /// Rows that shared memory has room for queries of: twice a half row tile's is what its consumers
  /// need to meet at once.
  static constexpr int query_rows = head_dim > 128 ? tile_rows : range_wide_tile;
};

/// Elements of a head; those that V has more are 0.
template <typename V>
__device__ std::int32_t head_dim_of(const Arguments& arguments) {
  return V::window_or_cap ? arguments.head_dim : V::head_dim;
}

template <typename V>
struct alignas(1024) SharedTiles {
  uint4 keys[V::stages][V::tile_tokens * V::vectors];
  uint4 values[V::stages][V::tile_tokens * V::vectors];
  uint4 queries[V::query_rows * V::vectors];  ///< also where consumers meet over shared rows
};

/// By token: the position from which on rows do not see it any more.
template <typename V, bool window_or_cap = V::window_or_cap>
struct WindowEnds {
  std::int32_t window_end[V::descriptions][V::tile_tokens];
};
template <typename V>
struct WindowEnds<V, false> {};

/// In static shared memory, which only code for this architecture asks for.
template <typename V>
struct SharedState : WindowEnds<V> {
  std::uint64_t keys_filled[V::stages], values_filled[V::stages];
  /// Two of each stage, which the KV tiles that fill it use alternately.
  std::uint64_t keys_emptied[2][V::stages], values_emptied[2][V::stages];
  /// By view and token, which of the view's queries see it, from its first one: if all have few, a
  /// bit for each; else the first that does and the one past the last, in the lower and upper half,
  /// equal where none sees it.
  std::uint16_t seen_by[V::descriptions][V::views][V::tile_tokens];
  /// By producer warp: see the constants below.
  std::uint32_t notes[V::descriptions][producer_warps];

  /// Rows that several have a part of: the second consumer's, or each warp's.
  static constexpr int shared_rows = V::tile_rows == range_narrow_tile
                                         ? consumer_threads / 32 * range_narrow_tile
                                     : V::leaves_out ? 1
                                                     : range_half_tile;
  float row_maximum[shared_rows], row_sum[shared_rows];
};
inline constexpr std::uint32_t note_last = 1;    ///< no further tile for this consumer
inline constexpr std::uint32_t note_copied = 2;  ///< copied by threads, not by boxes
inline constexpr std::uint32_t note_bits = 4;    ///< who sees a token is said by bits
// A bit for the first view; the next view's is a bit higher.
inline constexpr std::uint32_t note_masked = 8;  ///< some row does not see some token
inline constexpr std::uint32_t note_seen = 32;   ///< some row sees some token
inline constexpr int few_queries = 16;           ///< of which a token has bits

/// Hides what rows r and r + 8 do not see of their scores with neighbouring tokens, which lie as
/// products leave them. `seen_by`: the words of this lane's first two tokens, as in SharedState;
/// `sees(both, k)`: whether the row of score k of four sees its token, of a word's two.
template <int count, typename Sees>
__device__ inline void mask_scores(float (&scores)[count], const std::uint32_t* seen_by,
                                   Sees sees) {
#pragma unroll
  for (int i = 0; i < count; i += 4) {
    const std::uint32_t both = seen_by[i];
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      if (!sees(both, k)) scores[i + k] = -INFINITY;
    }
  }
}
/// Describes a view of few queries; `queries`: those of the two rows, from the view's first. Past
/// its last row they may be any.
template <int count>
__device__ inline void mask_by_bits(float (&scores)[count], const std::uint32_t* seen_by,
                                    const std::int32_t (&queries)[2]) {
  std::uint32_t own[4];  // the bits of even and odd tokens for each row
#pragma unroll
  for (int k = 0; k < 4; ++k) own[k] = 1u << (queries[k / 2] % few_queries + k % 2 * few_queries);
  mask_scores(scores, seen_by, [&](std::uint32_t both, int k) { return (both & own[k]) != 0; });
}

template <typename V>
__device__ RangePlan plan_of(const Arguments& arguments) {
  const PassScalars& scalars = *arguments.pass.scalars;
  RangePlan plan;
  static_cast<RangeCut&>(plan) = scalars.cut;
  plan.rows = scalars.rows;
  plan.group = arguments.group;
  plan.kv_heads = arguments.kv_heads;
  plan.tiles = {V::tile_rows, V::tile_tokens};
  plan.prefix = scalars.prefix;
  return plan;
}

/// A packed row's query and head; rows times group must fit 32 bits.
struct QueryHead {
  std::int32_t query, head;
};
__device__ inline QueryHead query_head(const Arguments& arguments, std::int32_t kv_head,
                                       std::int32_t packed_row) {
  const std::int32_t query =
      arguments.group == 1 ? packed_row
                           : static_cast<std::int32_t>(__umulhi(
                                 static_cast<std::uint32_t>(packed_row), arguments.group_inverse));
  return {query, kv_head * arguments.group + packed_row - query * arguments.group};
}

/// The queries of a view's rows `row` and `row` + 8, from its first; `begin`: its first packed row.
struct RowQueries {
  std::int32_t of[2];
};
__device__ inline RowQueries row_queries(const Arguments& arguments, std::int32_t begin, int row) {
  const std::int32_t first = query_head(arguments, 0, begin).query;
  return {{query_head(arguments, 0, begin + row).query - first,
           query_head(arguments, 0, begin + row + 8).query - first}};
}

/// Fetches what this block runs. To be called by a warp.
__device__ inline void load_range(const Arguments& arguments, BlockRange& range) {
  constexpr int words = sizeof(BlockRange) / sizeof(std::int32_t);
  static_assert(words <= 32 && sizeof(BlockRange) == words * sizeof(std::int32_t));
  const auto lane = static_cast<int>(threadIdx.x) % 32;
  if (lane >= words) return;
  reinterpret_cast<std::int32_t*>(&range)[lane] =
      reinterpret_cast<const std::int32_t*>(arguments.pass.ranges + blockIdx.x)[lane];
}

/// Calls visit(piece) for the pieces of this block in order.
template <typename Visit>
__device__ inline void for_each_piece(const Arguments& arguments, const RangePlan& plan,
                                      const BlockRange& range, Visit visit) {
  RangePiece piece = range.first;
#pragma unroll 1
  for (std::int32_t i = 0; i <= range.steps; ++i) {
    if (i > 0) {
      if (i == range.steps) {
        piece = range.last;
      } else {
        plan.advance(piece, range);
        if (piece.row_tile >= plan.row_tiles) continue;
        const int2 rows =
            *reinterpret_cast<const int2*>(&arguments.pass.row_tiles[piece.row_tile].rows);
        piece.rows = {rows.x, rows.y};
      }
    }
    if (piece.row_tile < plan.row_tiles) visit(piece);
  }
}

/// Where a KV tile lies, and which phases its barriers are in.
template <typename V>
struct StageCursor {
  int stage = 0;
  int description = 0;
  int round = 0;  ///< KV tiles that were in the stage before

  __device__ void advance() {
    description = description + 1 == V::descriptions ? 0 : description + 1;
    if (++stage == V::stages) {
      stage = 0;
      ++round;
    }
  }
  __device__ void wait_until_filled(std::uint64_t (&filled)[V::stages]) const {
    wait(&filled[stage], round & 1);
  }
  /// Which of the stage's barriers says that it is emptied again.
  __device__ std::uint64_t* emptied(std::uint64_t (&barriers)[2][V::stages]) const {
    return &barriers[round & 1][stage];
  }
  /// Waits until the last KV tile in the stage has been read. A wait tells a phase from the next
  /// one alone. Of two producers, one does not wait for the tile before that one, which the other
  /// consumer may still read; so that tile has another barrier.
  __device__ void wait_for_room(std::uint64_t (&barriers)[2][V::stages]) const {
    const int last = round - 1;
    wait(&barriers[last & 1][stage], last >> 1 & 1);
  }
};

}  // namespace coppice::cuda::hopper
