// Attention over an explicit list of work items, head_dim 128, for comparing cuts (item_plan.h):
// the library's portable kernel (kernels/cuda/attention/attention_item.cuh) with another list of
// work, and a kernel that joins its partial results. Layouts as in
// kernels/cuda/attention/attention.h, but
//   partial_out   [partial_rows, heads, 128] f32, 16-byte aligned
//   partial_lse   [partial_rows, heads] f32, log-sum-exp to base 2, -inf where nothing is seen
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "item_plan.h"
#include "kernels/cuda/attention/attention_operands.h"

namespace coppice::bench {

inline constexpr int item_head_dim = 128;

/// An ItemPlan in device memory.
struct ItemView {
  const Item* items;
  const KvSlot* slots;
  const std::uint64_t* masks;
  const std::int32_t* partials_begin;
  const std::int32_t* partials;
  std::int32_t item_count;
  std::int32_t tile_rows;
  std::int32_t rows;
  bool direct;
};

/// Once per device: sets the kernels' attributes.
void prepare_item_attention();

/// A block per item, in the list's order.
void item_attention(const ItemView& view, const cuda::Operands& operands, cudaStream_t stream);

}  // namespace coppice::bench
