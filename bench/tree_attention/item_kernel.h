// Attention over an explicit list of work items, head_dim 128: one kernel runs the items, one
// joins their partial results. Made for comparing cuts (item_plan.h): the tiles, fragments and
// copies are those of the library's portable kernel.
//
//   q        [rows, heads, 128] f32, rows q_stride floats apart, 8-byte aligned, q_stride even;
//            rounded to bf16 when read
//   keys, values  one layer [page][kv_head][page_size][128] bf16, 16-byte aligned
//   out      [rows, heads, 128] bf16, 8-byte aligned
//   partial_out   [partial_rows, heads, 128] f32, 16-byte aligned
//   partial_lse   [partial_rows, heads] f32, log-sum-exp to base 2, -inf where nothing is seen
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "item_plan.h"

namespace coppice::bench {

/// An ItemPlan in device memory, and its partial results.
struct ItemView {
  const Item* items;
  const KvSlot* slots;
  const std::uint64_t* masks;
  const std::int32_t* partials_begin;
  const std::int32_t* partials;
  float* partial_out;
  float* partial_lse;
  std::int32_t item_count;
  std::int32_t tile_rows;
  std::int32_t rows;
  std::int32_t group;
  std::int32_t kv_heads;
  bool direct;
};

struct ItemOperands {
  const float* q;
  std::int64_t q_stride;
  const void* keys;
  const void* values;
  void* out;
  std::int32_t page_size;
  float scale;
};

/// Once per device: sets the kernels' attributes.
void prepare_item_attention();

/// A block per item, in the list's order.
void item_attention(const ItemView& view, const ItemOperands& operands, cudaStream_t stream);

}  // namespace coppice::bench
