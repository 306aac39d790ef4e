// Rotation of one pair of a head's elements and the write into the KV pool, for the kernels of
// rope_write_kv() and for products that end in it.
#pragma once

#include <cstdint>

#include "kernels/cuda/pass/rope_tensors.h"
#include "kernels/cuda/vectors.cuh"

namespace coppice::cuda {

__host__ __device__ inline std::int32_t all_heads(const RopeTensors& tensors) {
  return tensors.heads + 2 * tensors.kv_heads;
}
__device__ inline float* head_in_qkv(const RopeTensors& tensors, std::int64_t row,
                                     std::int32_t head) {
  return tensors.qkv + (row * all_heads(tensors) + head) * tensors.head_dim;
}
/// Where a query goes: it is half as wide as what it is found in place of.
__device__ inline __nv_bfloat16* query_in_qkv(const RopeTensors& tensors, std::int64_t row,
                                              std::int32_t head) {
  return reinterpret_cast<__nv_bfloat16*>(head_in_qkv(tensors, row, head));
}

/// A head's elements in head_dim / 2 pairs: first those that are rotated, then the others, which
/// stay together so that neighbouring pairs have neighbouring elements.
struct Pair {
  std::int32_t low, high;
};
__device__ inline Pair pair_of(const RopeTensors& tensors, std::int32_t i) {
  const std::int32_t half = tensors.half_dim;
  if (i < half) return {i, i + half};
  return {i + half, i + tensors.head_dim / 2};
}

/// What becomes of pairs i to i + N - 1 of a head: where its row goes, and the angles.
template <int N>
struct Turn {
  KvSlot slot;  ///< of a query no_slot
  Vector<float, N> cosine, sine;
};
template <int N>
__device__ inline Turn<N> turn_of(const RopeTensors& tensors, std::int64_t row, std::int32_t head,
                                  std::int32_t i) {
  const bool is_query = head < tensors.heads;
  const bool is_value = head >= tensors.heads + tensors.kv_heads;
  Turn<N> turn{};
  turn.slot = is_query ? no_slot : tensors.slots[row];
  if (!is_value && i < tensors.half_dim) {
    const std::int64_t angle = std::int64_t{tensors.positions[row]} * tensors.half_dim + i;
    turn.cosine = load<N>(tensors.cosine + angle);
    turn.sine = load<N>(tensors.sine + angle);
  }
  return turn;
}

/// Takes elements of pairs i to i + N - 1 of a head to where they belong. If they come from qkv,
/// nobody may have to read a query's head any more.
template <int N>
__device__ inline void rotate_and_write(const RopeTensors& tensors, std::int64_t row,
                                        std::int32_t head, std::int32_t i, Vector<float, N> low,
                                        Vector<float, N> high, const Turn<N>& turn) {
  const bool is_query = head < tensors.heads;
  const bool is_value = head >= tensors.heads + tensors.kv_heads;
  if (!is_query && turn.slot < 0) return;
  if (!is_value && i < tensors.half_dim) {
#pragma unroll
    for (int k = 0; k < N; ++k) {
      const float a = low.at[k], b = high.at[k];
      // Fused by hand: the same bits in every kernel.
      low.at[k] = __fmaf_rn(a, turn.cosine.at[k], -__fmul_rn(b, turn.sine.at[k]));
      high.at[k] = __fmaf_rn(b, turn.cosine.at[k], __fmul_rn(a, turn.sine.at[k]));
    }
  }
  const Pair at = pair_of(tensors, i);
  __nv_bfloat16* to;
  if (is_query) {
    to = query_in_qkv(tensors, row, head);
  } else {
    const std::int32_t kv_head = head - tensors.heads - (is_value ? tensors.kv_heads : 0);
    const std::int64_t page = turn.slot / tensors.page_size;
    const std::int64_t token =
        (page * tensors.kv_heads + kv_head) * tensors.page_size + turn.slot % tensors.page_size;
    to = (is_value ? tensors.values : tensors.keys) + token * tensors.head_dim;
  }
  store(rounded(low), to + at.low);
  store(rounded(high), to + at.high);
}

}  // namespace coppice::cuda
