// What streamed products end in. A thread has two outputs of a tile, `partner` apart in the
// weights: what belongs together is in one thread.
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

struct Output {
  Ending ending;
  const float* bias;  ///< or null
  std::int32_t rows;
  std::int32_t tiles;
  std::int32_t width;          ///< outputs; of gated ones, pairs
  float* out;                  ///< of plain ones
  bool accumulate;             ///< of plain ones
  __nv_bfloat16* activations;  ///< of gated ones
  Activation activation;       ///< of gated ones
  RopeTensors rope;            ///< of rotated ones

  /// Element g of the tile's first side, and its partner.
  __device__ void store(std::int32_t row, std::int32_t tile, int g, float low, float high) const {
    if (row >= rows || tile >= tiles) return;
    if (ending == Ending::plain) {
      const std::int32_t j = tile * 2 * pair_outputs + g;
      store_plain(row, j, low);
      store_plain(row, j + pair_outputs, high);
      return;
    }
    if (ending == Ending::gated) {
      const std::int32_t i = tile * pair_outputs + g;
      if (i >= width) return;
      activations[std::int64_t{row} * width + i] =
          __float2bfloat16_rn(gated(activation, low + bias_of(i), high + bias_of(width + i)));
      return;
    }
    const std::int32_t head_tiles = rope.half_dim / pair_outputs;
    const std::int32_t head = tile / head_tiles;
    const std::int32_t i = tile % head_tiles * pair_outputs + g;
    const std::int32_t j = head * 2 * rope.half_dim + i;
    rotate_and_write<1>(rope, row, head, i, {{low + bias_of(j)}},
                        {{high + bias_of(j + rope.half_dim)}});
  }

 private:
  __device__ float bias_of(std::int32_t j) const { return bias == nullptr ? 0.0f : bias[j]; }
  __device__ void store_plain(std::int32_t row, std::int32_t j, float sum) const {
    if (j >= width) return;
    float* to = out + std::int64_t{row} * width + j;
    sum += bias_of(j);
    *to = accumulate ? *to + sum : sum;
  }
};

}  // namespace coppice::cuda::streamed
