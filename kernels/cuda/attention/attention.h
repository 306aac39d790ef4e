// DeFT-Flatten tree attention. The portable way is two kernels: one runs the work items of
// kernels/cuda/attention/flatten_plan.h, one joins their partial results. GPUs of compute
// capability 9.0 have a kernel of their own (hopper_attention.h) for more than a few rows, or many
// tokens, which does both. README.md explains both.
//
//   q        [rows, heads, head_dim] bf16, already rotated, as rope_write_kv() leaves it: rows
//            q_stride floats apart, heads head_dim floats. 16-byte aligned, q_stride a multiple of
//            4
//   keys, values  whole pools of `layout` in bf16, 16-byte aligned; slots as in the pass
//   out      [rows, heads, head_dim] bf16, 16-byte aligned; padding rows are not written
//   partial_out   [partial_capacity()][head_dim] f32, 16-byte aligned
//   partial_lse   [partial_capacity()] f32, log-sum-exp to base 2
//   tickets       [attention_tickets()] u32, 0 before the first launch; launches leave them 0
//   head_dim 64, 80, 96, 128, 192 or 256, and 8, 16 or 32 for small models; any number of heads
//   that kv_heads divides
//
// A partial result holds, over the tokens T that a query sees in a chunk,
//   lse = log2 sum_{t in T} 2^(s_t),  o = sum_{t in T} 2^(s_t - lse) v_t,
//   s_t = log2(e) cap(scale q k_t)
// with lse = -inf and o left out where T is empty. They are joined exactly (DeFT, eq. 1) and in
// chunk order:
//   out = sum_c 2^(lse_c - m) o_c / sum_c 2^(lse_c - m),  m = max_c lse_c
// Products take bf16 operands (weights 2^(s - m) are rounded to bf16 for the product with the
// values, not in their sum) and accumulate in f32. Equal plans give equal bits on any number of
// blocks. Keys and values of tokens that no query of a row tile sees are not read.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cuda/attention/flatten_plan.h"
#include "kernels/cuda/pass/pass_view.h"
#include "kernels/device.h"

namespace coppice::cuda {

struct AttentionScratch {
  float* partial_out;
  float* partial_lse;
  std::uint32_t* tickets;
};

/// Counters that launches with these blocks need.
inline std::size_t attention_tickets(const ResidentBlocks& blocks) {
  return static_cast<std::size_t>(blocks.ranges > 0 ? blocks.ranges : 1);
}

/// Once for every head_dim and device that tree_attention() runs with: sets the kernels'
/// attributes and says how many blocks the current device holds. Throws Error(usage) for a
/// head_dim without a kernel.
ResidentBlocks prepare_attention(std::int32_t head_dim);

/// Whether kernels that obey windows and soft caps have to run it.
inline bool has_rule(const AttentionRule& rule) { return rule.window > 0 || rule.soft_cap > 0; }

/// Kernels that obey windows have queries in 16 bits.
inline constexpr std::int32_t most_windowed_rows = (1 << 16) - 1;

/// What the rows of a pass see by a window.
struct WindowedKv {
  std::int32_t prefix = 0;           ///< tokens that every row may see; the tail's come behind them
  std::int32_t prefix_begin = 0;     ///< tokens before them that no row sees
  std::int32_t prefix_position = 0;  ///< of the first of them
  std::span<const KvSegment> tail = {};
  std::span<const KvSegment> near_tail = {};     ///< what is left of each; empty: all
  std::span<const KvSegment> by_row = {};        ///< as in RangeWork
  std::span<const std::int32_t> positions = {};  ///< of the rows, if there is a window
  std::int32_t window = 0;
  bool window_or_cap = false;  ///< some layer that the plan is for has a window or a soft cap
};

/// What makes a plan, and what a pass's launches read of it; as in PassView, in host memory.
struct AttentionPlan {
  RangePlanner& planner;
  PassScalars& scalars;
  std::span<BlockRange> ranges;  ///< as many as launches have blocks, at least blocks.ranges
  std::span<RowTile> row_tiles;  ///< at least row_tile_capacity(padded_rows)
};
/// 0 where launches never take ranges.
std::size_t row_tile_capacity(const AttentionShape& shape, std::int32_t padded_rows,
                              const ResidentBlocks& blocks);

/// Writes a pass's sizes and its plan, in time that grows with the tail's segments, and says which
/// launch the plan is for.
AttentionLaunch plan_attention(const AttentionShape& shape, std::int32_t rows,
                               std::int32_t padded_rows, const WindowedKv& kv,
                               const ResidentBlocks& blocks, const AttentionPlan& result);

/// Attention of one layer. The pass carries plan_attention()'s plan, made with equal
/// shape, padded_rows and blocks, and its launch, which depends on these and the rule alone. A
/// window has to be that which the plan's KV is of.
void tree_attention(AttentionLaunch launch, const PassView& pass, std::int32_t padded_rows,
                    const void* q, std::int64_t q_stride, const AttentionShape& shape,
                    const AttentionRule& rule, const KvLayout& layout, const void* keys,
                    const void* values, std::int32_t layer, void* out,
                    const AttentionScratch& scratch, const ResidentBlocks& blocks,
                    cudaStream_t stream);

}  // namespace coppice::cuda
