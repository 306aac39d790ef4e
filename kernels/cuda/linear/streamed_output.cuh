// What streamed products end in. A thread has outputs of both sides of a tile, which are partners:
// what belongs together is in one thread.
//
// A launch reads its code from memory anew, for the weights between two launches push it out of the
// caches. So there is one loop over rows and outputs, not a copy of it for every register of sums:
// that took 170 KB of code, and more time than many rows took otherwise.
#pragma once

#include "kernels/cuda/pass/activations.cuh"
#include "kernels/cuda/pass/rope.cuh"

namespace coppice::cuda::streamed {

/// Tile t has, with i = 8 t + g for g of 0 to 7,
///   plain    outputs 16 t + g and 16 t + 8 + g
///   gated    outputs i (gate) and n + i (up)
///   rotated  of head h elements i and i + half_dim, tiles counted within the head
enum class Ending { plain, gated, rotated };

inline constexpr int pair_outputs = 8;  ///< of a tile on either side
inline constexpr int tile_outputs = 2 * pair_outputs;
inline constexpr int part_inputs = 64;
inline constexpr int part_steps = part_inputs / 16;     ///< products of a part
inline constexpr int part_row_bytes = 2 * part_inputs;  ///< of a part, in shared memory
inline constexpr int side_bytes = pair_outputs * part_row_bytes;
inline constexpr int tile_bytes = 2 * side_bytes;
inline constexpr int tile_vectors = pair_outputs / vector_width;  ///< of a side

using Four = Vector<float, vector_width>;

struct Output {
  const float* bias;  ///< or null
  std::int32_t rows;
  std::int32_t width;          ///< outputs; of gated ones, pairs
  std::int32_t stride;         ///< of plain ones: from row to row of `out`
  bool vectors;                ///< width and stride are multiples of vector_width
  float* out;                  ///< of plain ones
  bool accumulate;             ///< of plain ones
  __nv_bfloat16* activations;  ///< of gated ones
  Activation activation;       ///< of gated ones
  RopeTensors rope;            ///< of rotated ones
};

/// Four pairs of partners of a row: elements g to g + 3 of the tile's first side, and theirs.
template <Ending ending>
class End;

/// Loads from rows whose width need not be a multiple of vectors.
__device__ inline Four load_from(const Output& output, const float* row, std::int32_t j) {
  if (output.vectors) return load<vector_width>(row + j);
  Four values{};
#pragma unroll
  for (int k = 0; k < vector_width; ++k) {
    if (j + k < output.width) values.at[k] = row[j + k];
  }
  return values;
}
template <typename T>
__device__ inline void store_to(const Output& output, const Vector<T, vector_width>& values, T* row,
                                std::int32_t j) {
  if (output.vectors) return store(values, row + j);
#pragma unroll
  for (int k = 0; k < vector_width; ++k) {
    if (j + k < output.width) row[j + k] = values.at[k];
  }
}
__device__ inline void add(Four& to, const Four& values) {
#pragma unroll
  for (int k = 0; k < vector_width; ++k) to.at[k] += values.at[k];
}

template <>
class End<Ending::plain> {
 public:
  /// What it takes besides the sums, on its way while others' are ended.
  __device__ void ask(const Output& output, std::int32_t row, std::int32_t tile, int g) {
    row_ = output.out + std::int64_t{row} * output.stride;
    j_ = tile * tile_outputs + g;
    ask_side(output, j_, low_);
    ask_side(output, j_ + pair_outputs, high_);
  }
  __device__ void store(const Output& output, const Four& low, const Four& high) const {
    store_side(output, j_, low, low_);
    store_side(output, j_ + pair_outputs, high, high_);
  }

 private:
  struct Side {
    Four former, bias;
  };
  __device__ void ask_side(const Output& output, std::int32_t j, Side& side) const {
    side = {};
    if (j >= output.width) return;
    if (output.accumulate) side.former = load_from(output, row_, j);
    if (output.bias != nullptr) side.bias = load_from(output, output.bias, j);
  }
  __device__ void store_side(const Output& output, std::int32_t j, Four sums,
                             const Side& side) const {
    if (j >= output.width) return;
    if (output.bias != nullptr) add(sums, side.bias);
    if (output.accumulate) add(sums, side.former);
    store_to(output, sums, row_, j);
  }

  float* row_;
  std::int32_t j_;
  Side low_, high_;
};

template <>
class End<Ending::gated> {
 public:
  __device__ void ask(const Output& output, std::int32_t row, std::int32_t tile, int g) {
    row_ = output.activations + std::int64_t{row} * output.width;
    i_ = tile * pair_outputs + g;
  }
  __device__ void store(const Output& output, Four low, Four high) const {
    if (i_ >= output.width) return;
    if (output.bias != nullptr) {
      add(low, load_from(output, output.bias, i_));
      add(high, load_from(output, output.bias + output.width, i_));
    }
#pragma unroll
    for (int k = 0; k < vector_width; ++k) {
      low.at[k] = gated(output.activation, low.at[k], high.at[k]);
    }
    store_to(output, rounded(low), row_, i_);
  }

 private:
  __nv_bfloat16* row_;
  std::int32_t i_;
};

template <>
class End<Ending::rotated> {
 public:
  __device__ void ask(const Output& output, std::int32_t row, std::int32_t tile, int g) {
    const std::int32_t head_tiles = output.rope.half_dim / pair_outputs;
    row_ = row;
    head_ = tile / head_tiles;
    i_ = (tile - head_ * head_tiles) * pair_outputs + g;
    turn_ = turn_of<vector_width>(output.rope, row, head_, i_);
  }
  __device__ void store(const Output& output, Four low, Four high) const {
    if (output.bias != nullptr) {
      const std::int32_t j = head_ * 2 * output.rope.half_dim + i_;
      add(low, load<vector_width>(output.bias + j));
      add(high, load<vector_width>(output.bias + j + output.rope.half_dim));
    }
    rotate_and_write<vector_width>(output.rope, row_, head_, i_, low, high, turn_);
  }

 private:
  std::int32_t row_, head_, i_;
  Turn<vector_width> turn_;
};

/// Ends rows first_row to first_row + rows - 1 of some tiles, by `threads` threads.
/// sum_at(row, output) sums up four neighbours, outputs counted from the first tile's. `together`
/// vectors at a time, so that what they take besides their sums comes at once.
template <Ending ending, int threads, int together, typename SumAt>
__device__ inline void end_rows(const Output& output, std::int32_t first_row, std::int32_t rows,
                                std::int32_t first_tile, std::int32_t tiles, SumAt sum_at) {
  const std::int32_t vectors = tiles * tile_vectors, all = vectors * rows;
  const float inverse = 1.0f / static_cast<float>(vectors);  // no integer division in the loop
#pragma unroll 1
  for (auto at = static_cast<std::int32_t>(threadIdx.x); at < all; at += together * threads) {
    End<ending> ends[together];
    std::int32_t row[together], place[together];
#pragma unroll
    for (int k = 0; k < together; ++k) {
      const std::int32_t i = min(at + k * threads, all - 1);
      const auto own_row = static_cast<std::int32_t>((static_cast<float>(i) + 0.5f) * inverse);
      const std::int32_t vector = i - own_row * vectors, tile = vector / tile_vectors;
      const int g = vector % tile_vectors * vector_width;
      row[k] = first_row + own_row;
      place[k] = tile * tile_outputs + g;
      ends[k].ask(output, row[k], first_tile + tile, g);
    }
#pragma unroll
    for (int k = 0; k < together; ++k) {
      if (at + k * threads >= all) break;
      ends[k].store(output, sum_at(row[k], place[k]), sum_at(row[k], place[k] + pair_outputs));
    }
  }
}

}  // namespace coppice::cuda::streamed
