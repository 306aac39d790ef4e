// The warpgroups that compute row tiles of 16 packed rows.
#pragma once

#include "kernels/cuda/attention/hopper_phases.h"
#include "kernels/cuda/attention/hopper_tiles.cuh"

namespace coppice::cuda::hopper {

/// All warps of both warpgroups have the same 16 rows, and each has tokens of its own of every KV
/// tile; in the end the first warp adds the others' results to its own. Products are those of a
/// warp (mma.sync): one of a warpgroup has at least 64 rows, nearly all of which would be of other
/// texts, or padding. So keys and values are given back soon after they have come, and what bounds
/// a block is how fast they come.
///
/// A thread has rows r and r + 8, r = lane / 4, of both columns 8 n + 2 (lane % 4) and the next
/// one, in registers 4 n to 4 n + 3.
template <typename V>
class NarrowConsumer {
 public:
  __device__ NarrowConsumer(const Arguments& arguments, const RangePlan&, SharedTiles<V>& tiles,
                            SharedState<V>& state)
      : arguments_(arguments),
        tiles_(tiles),
        state_(state),
        warp_(static_cast<int>(threadIdx.x) / 32 - producer_warps),
        lane_(static_cast<int>(threadIdx.x) % 32) {
    wait_for_former_kernels();
  }

  /// A thread's part of a piece's result: rows first_row() and first_row() + 8.
  float out[V::out_registers];
  float maximum[2], sum[2];  ///< of scores in units of log2, all columns

  __device__ int first_row() const { return lane_ / 4; }
  /// Whether this thread holds the result of its rows.
  __device__ bool holds_result() const { return warp_ == 0; }

  template <typename Trace>
  __device__ void compute(const RangePiece& piece, const Trace& trace) {
    std::uint32_t queries[V::head_dim / 16][4];
    take_queries(piece, queries);
    if (first_piece_) trace.mark(Phase::queries_stored);
    const auto own = row_queries(arguments_, piece.rows.begin, first_row());
    maximum[0] = maximum[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;
#pragma unroll
    for (float& element : out) element = 0.0f;
    std::uint32_t notes;
#pragma unroll 1
    do {
      cursor_.wait_until_filled(state_.keys_filled);
      notes = state_.notes[cursor_.description][warp_ * warp_tokens / V::warp_tokens];
      if (first_piece_) trace.mark(Phase::first_keys);
      first_piece_ = false;
      float scores[warp_tokens / 2];
      multiply_keys(queries, scores);
      arrive(cursor_.emptied(state_.keys_emptied));
      float kept[2];
      weigh(scores, notes, own, kept);
#pragma unroll
      for (int i = 0; i < V::out_registers; ++i) out[i] *= kept[i / 2 % 2];
      cursor_.wait_until_filled(state_.values_filled);
      multiply_values(scores);
      __syncwarp();
      if (lane_ == 0) arrive(cursor_.emptied(state_.values_emptied));
      cursor_.advance();
    } while ((notes & note_last) == 0);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(all_lanes, sum[half], 1);
      sum[half] += __shfl_xor_sync(all_lanes, sum[half], 2);
    }
    meet();
  }

 private:
  static constexpr int warps = consumer_threads / 32;
  static constexpr int warp_tokens = V::tile_tokens / warps;  ///< of a KV tile
  static_assert(warp_tokens == 16 && V::warp_tokens % warp_tokens == 0);

  /// Rows of the piece, by way of shared memory, as the left operand of products, 16
  /// columns at a time; past the tile's last row, that one again. Nobody reads that memory any
  /// more: see meet().
  __device__ void take_queries(const RangePiece& piece,
                               std::uint32_t (&queries)[V::head_dim / 16][4]) {
    const int thread = static_cast<int>(threadIdx.x) - warpgroup_threads;
    const auto place = [](int row, int vector) {
      return row * V::vectors + (vector & ~7) + ((vector % 8) ^ (row % 8));
    };
    if (thread < V::tile_rows * V::vectors) {
      const int row = thread / V::vectors;
      const int vector = thread % V::vectors;
      const auto [query, head] =
          query_head(arguments_, piece.kv_head, min(piece.rows.begin + row, piece.rows.end - 1));
      tiles_.queries[place(row, vector)] =
          *reinterpret_cast<const uint4*>(arguments_.query(query, head, V::head_dim) + 8 * vector);
    }
    block_barrier_wait(both_barrier, consumer_threads);
#pragma unroll
    for (int k = 0; k < V::head_dim / 16; ++k) {
      flatten::load_rows(queries[k], tiles_.queries + place(lane_ % 16, 2 * k + lane_ / 16));
    }
  }

  /// A vector of a token among this warp's.
  __device__ const uint4* vector_of(const uint4* tile, int token, int vector) const {
    const int row = warp_ * warp_tokens + token;
    return tile + vector / 8 * (V::panel_bytes / 16) + row / 8 * (V::eight_rows_bytes / 16) +
           row % 8 * 8 + ((vector % 8) ^ (row % 8));
  }
  /// scores = queries keys^T, of this warp's tokens. Two sums each, so that products wait less for
  /// one another.
  __device__ void multiply_keys(const std::uint32_t (&queries)[V::head_dim / 16][4],
                                float (&scores)[warp_tokens / 2]) const {
    float sums[2][2][4] = {};
#pragma unroll
    for (int k = 0; k < V::head_dim / 16; ++k) {
      std::uint32_t keys[4];
      flatten::load_rows(keys, vector_of(tiles_.keys[cursor_.stage], lane_ / 16 * 8 + lane_ % 8,
                                         2 * k + lane_ / 8 % 2));
      flatten::multiply_add(sums[k % 2][0], queries[k], keys[0], keys[1]);
      flatten::multiply_add(sums[k % 2][1], queries[k], keys[2], keys[3]);
    }
#pragma unroll
    for (int i = 0; i < warp_tokens / 2; ++i)
      scores[i] = sums[0][i / 4][i % 4] + sums[1][i / 4][i % 4];
  }

  /// Scores become weights relative to the new maximum; `kept` is what earlier weights are
  /// multiplied by.
  __device__ void weigh(float (&scores)[warp_tokens / 2], std::uint32_t notes,
                        const RowQueries& own, float (&kept)[2]) {
    if ((notes & note_masked) != 0) {
      static_assert(V::tile_rows <= few_queries);
      const auto* seen_by =
          reinterpret_cast<const std::uint32_t*>(state_.seen_by[cursor_.description][0]) +
          warp_ * (warp_tokens / 2) + lane_ % 4;
      mask_by_bits(scores, seen_by, own.of);
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = -INFINITY;
#pragma unroll
      for (int i = 0; i < warp_tokens / 2; ++i) {
        if (i / 2 % 2 == half) top = fmaxf(top, scores[i]);
      }
      top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
      top = fmaxf(maximum[half], top * arguments_.score_scale);
      // A row that has seen nothing so far subtracts 0, not infinity from infinity.
      const float subtracted = top == -INFINITY ? 0.0f : top;
      kept[half] = flatten::power_of_two(maximum[half] - subtracted);
      maximum[half] = top;
      float added = 0.0f;
#pragma unroll
      for (int i = 0; i < warp_tokens / 2; ++i) {
        if (i / 2 % 2 != half) continue;
        scores[i] = flatten::power_of_two(fmaf(scores[i], arguments_.score_scale, -subtracted));
        added += scores[i];
      }
      sum[half] = sum[half] * kept[half] + added;
    }
  }

  /// out += weights values, of this warp's tokens.
  __device__ void multiply_values(const float (&weights)[warp_tokens / 2]) {
    std::uint32_t rows[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) rows[i] = flatten::pack(weights[2 * i], weights[2 * i + 1]);
#pragma unroll
    for (int n = 0; n < V::head_dim / 16; ++n) {
      std::uint32_t values[4];
      flatten::load_columns(values, vector_of(tiles_.values[cursor_.stage],
                                              lane_ / 8 % 2 * 8 + lane_ % 8, 2 * n + lane_ / 16));
      flatten::multiply_add(*reinterpret_cast<float(*)[4]>(out + 8 * n), rows, values[0],
                            values[1]);
      flatten::multiply_add(*reinterpret_cast<float(*)[4]>(out + 8 * n + 4), rows, values[2],
                            values[3]);
    }
  }

  /// The first warp adds the others' results to its own: four warps theirs to the other four's,
  /// then two, then one. What a warp has left in shared memory one other reads, which then is the
  /// only one that writes there, until a barrier has come after.
  __device__ void meet() {
    if (lane_ % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        state_.row_maximum[warp_ * 16 + first_row() + 8 * half] = maximum[half];
        state_.row_sum[warp_ * 16 + first_row() + 8 * half] = sum[half];
      }
    }
    block_barrier_wait(both_barrier, consumer_threads);
    float kept[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = -INFINITY;
#pragma unroll
      for (int warp = 0; warp < warps; ++warp) {
        top = fmaxf(top, state_.row_maximum[warp * 16 + first_row() + 8 * half]);
      }
      const float subtracted = top == -INFINITY ? 0.0f : top;
      kept[half] = flatten::power_of_two(maximum[half] - subtracted);
      maximum[half] = top;
      sum[half] = 0.0f;
#pragma unroll
      for (int warp = 0; warp < warps; ++warp) {
        const int row = warp * 16 + first_row() + 8 * half;
        sum[half] +=
            state_.row_sum[row] * flatten::power_of_two(state_.row_maximum[row] - subtracted);
      }
    }
#pragma unroll
    for (int i = 0; i < V::out_registers; ++i) out[i] *= kept[i / 2 % 2];
#pragma unroll
    for (int others = warps / 2; others > 0; others /= 2) {
      const auto parts = [&](int warp) {
        return reinterpret_cast<float4*>(tiles_.queries) +
               warp % (warps / 2) * (V::out_registers / 4 * 32) + lane_;
      };
      if (warp_ >= others && warp_ < 2 * others) {
#pragma unroll
        for (int i = 0; i < V::out_registers / 4; ++i) {
          parts(warp_)[i * 32] = float4{out[4 * i], out[4 * i + 1], out[4 * i + 2], out[4 * i + 3]};
        }
      }
      block_barrier_wait(both_barrier, consumer_threads);
      if (warp_ < others) {
#pragma unroll
        for (int i = 0; i < V::out_registers / 4; ++i) {
          const float4 part = parts(warp_ + others)[i * 32];
          out[4 * i] += part.x;
          out[4 * i + 1] += part.y;
          out[4 * i + 2] += part.z;
          out[4 * i + 3] += part.w;
        }
      }
    }
  }

  const Arguments& arguments_;
  SharedTiles<V>& tiles_;
  SharedState<V>& state_;
  const int warp_, lane_;
  bool first_piece_ = true;
  StageCursor<V> cursor_;
};

}  // namespace coppice::cuda::hopper
