// What every attention kernel reads and writes besides its list of work.
// kernels/cuda/attention/attention.h has the tensors' layouts.
#pragma once

#include <cuda_bf16.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cuda/attention/attention.h"

namespace coppice::cuda {

/// Wider than any text. Positions stay below it, so that both add up in 32 bits.
inline constexpr std::int32_t without_window = 1 << 30;

struct Operands {
  const __nv_bfloat16* q;
  std::int64_t q_stride;        ///< in bf16
  const __nv_bfloat16* keys;    ///< first page of the layer
  const __nv_bfloat16* values;  ///< first page of the layer
  std::int32_t page_size;
  std::int32_t kv_heads;
  std::int32_t group;
  float score_scale;  ///< log2(e) * scale
  // What variants with a window or a soft cap obey besides.
  float soft_cap;       ///< log2(e) * that of the rule; 0: none
  float cap_argument;   ///< scale / that of the rule
  std::int32_t window;  ///< without_window for none
  __nv_bfloat16* out;
  float* partial_out;
  float* partial_lse;

  COPPICE_HOST_DEVICE std::int32_t heads() const { return kv_heads * group; }
  /// Returns a query's head; each has room for as many floats.
  COPPICE_HOST_DEVICE const __nv_bfloat16* query(std::int64_t row, std::int64_t head,
                                                 std::int32_t head_dim) const {
    return q + row * q_stride + head * 2 * head_dim;
  }
};

/// Arguments as for tree_attention().
inline Operands make_operands(const void* q, std::int64_t q_stride, const AttentionShape& shape,
                              const AttentionRule& rule, const KvLayout& layout, const void* keys,
                              const void* values, std::int32_t layer, void* out,
                              const AttentionScratch& scratch) {
  constexpr double log2_e = 1.4426950408889634;
  const std::int64_t layer_begin =
      std::int64_t{layer} * layout.pages * layout.kv_heads * layout.page_size * layout.head_dim;
  return {static_cast<const __nv_bfloat16*>(q),
          2 * q_stride,
          static_cast<const __nv_bfloat16*>(keys) + layer_begin,
          static_cast<const __nv_bfloat16*>(values) + layer_begin,
          layout.page_size,
          shape.kv_heads,
          shape.heads / shape.kv_heads,
          static_cast<float>(log2_e * static_cast<double>(rule.scale)),
          static_cast<float>(log2_e * static_cast<double>(rule.soft_cap)),
          rule.soft_cap > 0 ? rule.scale / rule.soft_cap : 0.0f,
          rule.window > 0 ? std::min(rule.window, without_window) : without_window,
          static_cast<__nv_bfloat16*>(out),
          scratch.partial_out,
          scratch.partial_lse};
}

}  // namespace coppice::cuda
