// The warpgroups that compute.
#pragma once

#include <type_traits>

#include "kernels/cuda/attention/hopper_phases.h"
#include "kernels/cuda/attention/hopper_tiles.cuh"

namespace coppice::cuda::hopper {

/// A warpgroup's 64 packed rows: this thread has rows r and r + 8, r = 16 (its warp) + lane / 4,
/// of both columns 8 n + 2 (lane % 4) and the next one, in registers 4 n to 4 n + 3.
template <typename V>
class Consumer {
 public:
  __device__ Consumer(const Arguments& arguments, const RangePlan& plan, SharedTiles<V>& tiles,
                      SharedState<V>& state)
      : arguments_(arguments),
        plan_(plan),
        tiles_(tiles),
        state_(state),
        index_(static_cast<int>(threadIdx.x) / warpgroup_threads - 1),
        thread_(static_cast<int>(threadIdx.x) % warpgroup_threads),
        lane_(thread_ % 32),
        first_row_((V::shares_rows ? 0 : 64 * index_) + thread_ / 32 * 16 + lane_ / 4) {
    wait_for_former_kernels();
    // The second consumer reads the tile after the first's.
    if (V::shares_rows && index_ == 1) cursor_.advance();
    // The first consumer goes first (ping-pong).
    if (index_ == 1) pass_turn();
  }

  /// A thread's part of a piece's result: rows first_row() and first_row() + 8.
  float out[V::out_registers];
  float maximum[2], sum[2];  ///< of scores in units of log2, all columns

  __device__ int first_row() const { return first_row_; }
  /// Whether this consumer holds the result of the rows.
  __device__ bool holds_result() const { return !V::shares_rows || index_ == 0; }

  template <typename Trace>
  __device__ void compute(const RangePiece& piece, const Trace& trace) {
    std::uint32_t rows[V::head_dim / 16][4];
    load_queries<!std::is_empty_v<Trace>>(piece);
    if constexpr (V::keeps_queries) take_queries(rows);
    if (first_piece_) trace.mark(Phase::queries_stored);

    maximum[0] = maximum[1] = -INFINITY;
    sum[0] = sum[1] = 0.0f;

    float scores[V::tile_tokens / 2];
    std::uint32_t weights[V::tile_tokens / 16][4];
#pragma unroll
    for (float& element : out) element = 0.0f;
    // Values are multiplied one tile later than keys: while a tile's weights are found, the last
    // one's products run. So a tile's values are held while one more tile is left out, whose values
    // are held too; never more: the copies wait for their room, and the other half for the copies.
    float kept[2];
    std::uint32_t notes;
    bool more = true;
#pragma unroll 1
    while (more && begin_seen_tile(notes)) {
      if (first_piece_) trace.mark(Phase::first_keys);
      first_piece_ = false;
      take_turn();
      multiply_queries(rows, scores);
      commit_products();
      pass_turn();
      wait_for_products<0>();
      pin(scores);
      give_keys_back();
      weigh(scores, notes, piece, kept);
      if constexpr (V::leaves_out) rescale(kept);
      to_weights(scores, weights);
      StageCursor<V> of_values = cursor_;
      more = advance(notes);
#pragma unroll 1
      while (more) {
        const std::uint32_t notes_of_values = notes;
        std::uint32_t next = begin_tile();
        // The values of a tile left out are given back when the next one's products are queued, or
        // at once if there are none.
        const bool leaves = !sees(next);
        const StageCursor<V> left = cursor_;
        if (leaves) {
          give_keys_back();
          more = advance(next);
          if (more) next = begin_tile();
          if (!more || !sees(next)) {
            give_values_back(left);
            break;
          }
        }
        notes = next;
        take_turn();
        multiply_queries(rows, scores);
        commit_products();
        wait_for_values(of_values, notes_of_values);
        multiply_values(weights, of_values.stage);
        commit_products();
        pass_turn();
        if (leaves) give_values_back(left);
        wait_for_products<1>();
        pin(scores);
        give_keys_back();
        weigh(scores, notes, piece, kept);
        pin(scores);  // weights are found while the products run, not after
        wait_for_products<0>();
        pin(out);
        pin(weights);
        give_back(of_values.emptied(state_.values_emptied));
        rescale(kept);
        to_weights(scores, weights);
        of_values = cursor_;
        more = advance(notes);
      }
      wait_for_values(of_values, notes);
      multiply_values(weights, of_values.stage);
      commit_products();
      wait_for_products<0>();
      pin(out);
      give_back(of_values.emptied(state_.values_emptied));
    }

#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] += __shfl_xor_sync(all_lanes, sum[half], 1);
      sum[half] += __shfl_xor_sync(all_lanes, sum[half], 2);
    }
    if constexpr (V::shares_rows) meet();
  }

 private:
  __device__ int view() const { return V::views > 1 ? index_ : 0; }

  /// Whether there is a next tile.
  __device__ bool advance(std::uint32_t notes) {
    for (int step = 0; step < V::takers; ++step) cursor_.advance();
    return (notes & note_last) == 0;
  }
  __device__ bool sees(std::uint32_t notes) const {
    return !V::leaves_out || (notes & note_seen << index_) != 0;
  }
  /// Waits for the next tile of which these rows see something; false: there is none.
  __device__ bool begin_seen_tile(std::uint32_t& notes) {
    for (;;) {
      notes = begin_tile();
      if (sees(notes)) return true;
      give_keys_back();
      give_values_back(cursor_);
      if (!advance(notes)) return false;
    }
  }
  /// Gives back the values of a tile left out. They have to be there: a copy on its way would meet
  /// the next one.
  __device__ void give_values_back(const StageCursor<V>& cursor) {
    cursor.wait_until_filled(state_.values_filled);
    give_back(cursor.emptied(state_.values_emptied));
  }

  // Ping-pong: products of the two consumers alternate, so that one's products run while the other
  // weighs. Where they leave tiles out, neither has to wait for a tile that the other one has not
  // begun. After the last tile nobody takes the turn: its barrier serves nothing else.
  __device__ void take_turn() {
    if (!V::leaves_out) block_barrier_wait(ping_pong_barrier + index_, consumer_threads);
  }
  __device__ void pass_turn() {
    if (!V::leaves_out) block_barrier_arrive(ping_pong_barrier + 1 - index_, consumer_threads);
  }

  __device__ void wait_for_values(const StageCursor<V>& cursor, std::uint32_t notes) {
    cursor.wait_until_filled(state_.values_filled);
    if ((notes & note_copied) != 0) make_visible_to_products();
  }
  /// Every lane: it has read the last tile's description, too.
  __device__ void give_keys_back() { arrive(cursor_.emptied(state_.keys_emptied)); }
  __device__ void give_back(std::uint64_t* emptied) {
    __syncwarp();
    if (lane_ == 0) arrive(emptied);
  }
  /// Waits for the next tile's keys.
  __device__ std::uint32_t begin_tile() {
    cursor_.wait_until_filled(state_.keys_filled);
    const auto& of_warps = state_.notes[cursor_.description];
    const std::uint32_t notes = of_warps[0] | of_warps[1] | of_warps[2] | of_warps[3];
    if ((notes & note_copied) != 0) make_visible_to_products();
    return notes;
  }

  /// Rows of the piece to shared memory; past the tile's last row, that one again. `traced`: a
  /// trace's marks need registers.
  template <bool traced>
  __device__ void load_queries(const RangePiece& piece) {
    constexpr int loaders = V::shares_rows ? consumer_threads : warpgroup_threads;
    constexpr int rows_at_once = loaders / V::vectors;
    const std::int32_t head_dim = head_dim_of<V>(arguments_);
    const int loader = V::shares_rows ? static_cast<int>(threadIdx.x) - warpgroup_threads : thread_;
    const int vector = loader % V::vectors;
    int first = (V::shares_rows ? 0 : 64 * index_) + loader / V::vectors;
    // As in multiply_queries().
    if constexpr (V::head_dim > 128 || (V::leaves_out && traced)) asm volatile("" : "+r"(first));
    meet_over_rows();  // nobody reads the last piece's queries any more
#pragma unroll
    for (int i = 0; i < 64 / rows_at_once; ++i) {
      const int row = first + i * rows_at_once;
      const auto [query, head] =
          query_head(arguments_, piece.kv_head, min(piece.rows.begin + row, piece.rows.end - 1));
      const bool in_head = !V::window_or_cap || 8 * vector < head_dim;
      flatten::copy_or_clear(tiles_.queries + vector / 8 * (V::query_panel_bytes / 16) + row * 8 +
                                 ((vector % 8) ^ (row % 8)),
                             arguments_.query(query, head, head_dim) + (in_head ? 8 * vector : 0),
                             in_head);
    }
    flatten::wait_for_copies();
    make_visible_to_products();
    meet_over_rows();
  }
  /// This thread's part of the stored queries as the left operand of products, 16 columns at a
  /// time.
  __device__ void take_queries(std::uint32_t (&rows)[V::head_dim / 16][4]) const {
    const int row = first_row_ - lane_ / 4 + lane_ % 16;
#pragma unroll
    for (int k = 0; k < V::head_dim / 16; ++k) {
      const int vector = 2 * k + lane_ / 16;
      flatten::load_rows(rows[k], tiles_.queries + vector / 8 * (V::query_panel_bytes / 16) +
                                      row * 8 + ((vector % 8) ^ (row % 8)));
    }
  }
  /// A barrier of those that share rows.
  __device__ void meet_over_rows() {
    if (V::shares_rows) {
      block_barrier_wait(both_barrier, consumer_threads);
    } else {
      block_barrier_wait(rows_barrier + index_, warpgroup_threads);
    }
  }

  /// Starts scores = queries keys^T.
  __device__ void multiply_queries(std::uint32_t (&rows)[V::head_dim / 16][4],
                                   float (&scores)[V::tile_tokens / 2]) {
    const std::uint32_t keys = matrix_descriptor(shared_address(tiles_.keys[cursor_.stage]), 16);
    std::uint32_t queries = matrix_descriptor(
        shared_address(tiles_.queries) + (V::shares_rows ? 0 : 64 * 128 * index_), 16);
    // Large heads leave no registers to keep what follows from it.
    if constexpr (V::head_dim > 128) asm volatile("" : "+r"(queries));
    pin(scores);
    if constexpr (V::keeps_queries) pin(rows);
    begin_products();
#pragma unroll
    for (int k = 0; k < V::head_dim / 16; ++k) {
      const std::uint64_t of_keys =
          moved_descriptor<V::eight_rows_bytes>(keys, k / 4 * V::panel_bytes + k % 4 * 32);
      if constexpr (V::keeps_queries) {
        multiply_add_rows(scores, rows[k], of_keys, k > 0);
      } else {
        multiply_add_shared(scores,
                            moved_descriptor(queries, k / 4 * V::query_panel_bytes + k % 4 * 32),
                            of_keys, k > 0);
      }
    }
  }
  /// Starts out += weights values.
  __device__ void multiply_values(const std::uint32_t (&weights)[V::tile_tokens / 16][4],
                                  int stage) {
    // Products have up to 128 columns.
    constexpr int registers = V::out_registers < 64 ? V::out_registers : 64;
    const std::uint32_t values =
        matrix_descriptor(shared_address(tiles_.values[stage]), V::panel_bytes);
    pin(out);
    begin_products();
#pragma unroll
    for (int k = 0; k < V::tile_tokens / 16; ++k) {
#pragma unroll
      for (int first = 0; first < V::out_registers; first += registers) {
        multiply_add_registers(
            *reinterpret_cast<float(*)[registers]>(out + first), weights[k],
            moved_descriptor<V::eight_rows_bytes>(
                values, first / 32 * V::panel_bytes + k * 2 * V::eight_rows_bytes),
            true);
      }
    }
  }

  /// Scores become weights relative to the new maximum; `kept` is what earlier weights are
  /// multiplied by.
  __device__ void weigh(float (&scores)[V::tile_tokens / 2], std::uint32_t notes,
                        const RangePiece& piece, float (&kept)[2]) {
    float score_scale = arguments_.score_scale;
    if (V::window_or_cap && arguments_.soft_cap > 0.0f) {
      flatten::hyperbolic_tangents(scores, arguments_.cap_argument);
      score_scale = arguments_.soft_cap;
    }
    if ((notes & note_masked << view()) != 0) mask(scores, notes, piece);
    // In several chains each: one would wait for itself most of the time.
    constexpr int chains = 4;
    float tops[2][chains], added[2][chains] = {}, subtracted[2];
#pragma unroll
    for (int n = 0; n < V::tile_tokens / 8; ++n) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float top = fmaxf(scores[4 * n + 2 * half], scores[4 * n + 2 * half + 1]);
        float& of_chain = tops[half][n % chains];
        of_chain = n < chains ? top : fmaxf(of_chain, top);
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      float top = fmaxf(fmaxf(tops[half][0], tops[half][1]), fmaxf(tops[half][2], tops[half][3]));
      top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 1));
      top = fmaxf(top, __shfl_xor_sync(all_lanes, top, 2));
      top = fmaxf(maximum[half], top * score_scale);
      // A row that has seen nothing so far subtracts 0, not infinity from infinity.
      subtracted[half] = top == -INFINITY ? 0.0f : top;
      kept[half] = flatten::power_of_two(maximum[half] - subtracted[half]);
      maximum[half] = top;
    }
#pragma unroll
    for (int n = 0; n < V::tile_tokens / 8; ++n) {
#pragma unroll
      for (int i = 4 * n; i < 4 * n + 4; ++i) {
        const int half = i / 2 % 2;
        scores[i] = flatten::power_of_two(fmaf(scores[i], score_scale, -subtracted[half]));
        added[half][n % 2 * 2 + i % 2] += scores[i];
      }
    }
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      sum[half] = sum[half] * kept[half] +
                  ((added[half][0] + added[half][1]) + (added[half][2] + added[half][3]));
    }
  }
  /// What it takes is found anew for each tile, for registers are short.
  __device__ void mask(float (&scores)[V::tile_tokens / 2], std::uint32_t notes,
                       const RangePiece& piece) const {
    const int view_begin = view() * V::view_rows;
    const auto queries =
        row_queries(arguments_, piece.rows.begin + view_begin, first_row_ - view_begin);
    const auto* seen_by =
        reinterpret_cast<const std::uint32_t*>(state_.seen_by[cursor_.description][view()]) +
        lane_ % 4;
    if ((notes & note_bits) != 0) {
      mask_by_bits(scores, seen_by, queries.of);
    } else {
      mask_scores(scores, seen_by, [&](std::uint32_t both, int k) {
        const auto token = static_cast<std::int32_t>(k % 2 == 0 ? both & 0xffff : both >> 16);
        const std::int32_t query = queries.of[k / 2];
        return query >= (token & 0xff) && query < token >> 8;
      });
    }
    if constexpr (V::window_or_cap) mask_by_windows(scores, piece);
  }
  __device__ void mask_by_windows(float (&scores)[V::tile_tokens / 2],
                                  const RangePiece& piece) const {
    std::int32_t positions[2];
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const std::int32_t real = min(piece.rows.begin + first_row_ + 8 * half, piece.rows.end - 1);
      positions[half] = arguments_.pass.positions[query_head(arguments_, 0, real).query];
    }
#pragma unroll
    for (int n = 0; n < V::tile_tokens / 8; ++n) {
      const int2 ends = *reinterpret_cast<const int2*>(
          &state_.window_end[cursor_.description][8 * n + lane_ % 4 * 2]);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (positions[i / 2] >= (i % 2 == 0 ? ends.x : ends.y)) scores[4 * n + i] = -INFINITY;
      }
    }
  }
  __device__ void rescale(const float (&kept)[2]) {
#pragma unroll
    for (int i = 0; i < V::out_registers; ++i) out[i] *= kept[i / 2 % 2];
  }
  __device__ static void to_weights(const float (&scores)[V::tile_tokens / 2],
                                    std::uint32_t (&weights)[V::tile_tokens / 16][4]) {
#pragma unroll
    for (int k = 0; k < V::tile_tokens / 16; ++k) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        weights[k][i] = flatten::pack(scores[8 * k + 2 * i], scores[8 * k + 2 * i + 1]);
      }
    }
  }

  /// The first consumer adds the second's part of their rows' result to its own, as much at a time
  /// as there is shared memory for.
  __device__ void meet() {
    constexpr int vectors = V::out_registers / 4;
    constexpr int room = static_cast<int>(sizeof(tiles_.queries) / sizeof(float4));
    constexpr int at_once = room / warpgroup_threads < vectors ? room / warpgroup_threads : vectors;
    static_assert(vectors % at_once == 0);
    auto* parts = reinterpret_cast<float4*>(tiles_.queries) + thread_;
    const int row = thread_ / 32 * 16 + lane_ / 4;
    meet_over_rows();  // the first one's products may still read the queries
    if (index_ == 1 && lane_ % 4 == 0) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        state_.row_maximum[row + 8 * half] = maximum[half];
        state_.row_sum[row + 8 * half] = sum[half];
      }
    }
    float kept[2], other_kept[2];
#pragma unroll
    for (int first = 0; first < vectors; first += at_once) {
      if (first > 0) meet_over_rows();
      if (index_ == 1) {
#pragma unroll
        for (int i = 0; i < at_once; ++i) {
          const float* part = out + 4 * (first + i);
          parts[i * warpgroup_threads] = float4{part[0], part[1], part[2], part[3]};
        }
      }
      meet_over_rows();
      if (index_ == 1) continue;
      if (first == 0) {
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          const float other = state_.row_maximum[row + 8 * half];
          const float top = fmaxf(maximum[half], other);
          const float subtracted = top == -INFINITY ? 0.0f : top;
          kept[half] = flatten::power_of_two(maximum[half] - subtracted);
          other_kept[half] = flatten::power_of_two(other - subtracted);
          maximum[half] = top;
          sum[half] = sum[half] * kept[half] + state_.row_sum[row + 8 * half] * other_kept[half];
        }
      }
#pragma unroll
      for (int i = 0; i < at_once; ++i) {
        const float4 part = parts[i * warpgroup_threads];
        float* own = out + 4 * (first + i);
        own[0] = own[0] * kept[0] + part.x * other_kept[0];
        own[1] = own[1] * kept[0] + part.y * other_kept[0];
        own[2] = own[2] * kept[1] + part.z * other_kept[1];
        own[3] = own[3] * kept[1] + part.w * other_kept[1];
      }
    }
  }

  const Arguments& arguments_;
  const RangePlan& plan_;
  SharedTiles<V>& tiles_;
  SharedState<V>& state_;
  const int index_, thread_, lane_, first_row_;
  bool first_piece_ = true;
  StageCursor<V> cursor_;
};

}  // namespace coppice::cuda::hopper
