// Attention by a list of items (item_list.h): the portable kernel over another list of work.
#pragma once

#include "kernels/cuda/attention/attention.h"

namespace coppice::cuda {

/// Says whether there are kernels for heads of this many elements, without windows and soft caps.
constexpr bool has_listed_attention(std::int32_t head_dim) {
  return head_dim == 64 || head_dim == 128;
}

/// Sets the kernels' attributes.
void prepare_listed_attention(std::int32_t head_dim);

/// As tree_attention(); the pass has a list, and the scratch memory room for its partial results:
/// partial_out [partials, heads, head_dim], partial_lse [partials, heads].
void listed_attention(std::int32_t tile_rows, const PassView& pass, std::int32_t padded_rows,
                      const void* q, std::int64_t q_stride, const AttentionShape& shape,
                      const AttentionRule& rule, const KvLayout& layout, const void* keys,
                      const void* values, std::int32_t layer, void* out,
                      const AttentionScratch& scratch, const ResidentBlocks& blocks,
                      cudaStream_t stream);

}  // namespace coppice::cuda
