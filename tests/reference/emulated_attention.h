// DeFT-Flatten attention as a device runs it, item by item, in double precision: every decision
// that kernels/cuda/attention/flatten_plan.h takes is taken by the same functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "kernels/cuda/attention/flatten_plan.h"

namespace coppice::testing {

/// Faults that a test of the plan must notice.
enum class FlattenFault {
  none,
  interval_one_longer,    ///< q_end of every tail token
  interval_one_later,     ///< q_begin of every tail token
  hole_attended,          ///< prefix entries without a slot stand for slot 0
  chunk_one_longer,       ///< chunks overlap by a token
  span_one_short,         ///< the last visible token of an item is left out
  tile_one_row_short,     ///< the last packed row of a row tile is not computed
  heads_not_packed,       ///< every packed row is the group's first head
  last_partial_left_out,  ///< of every join
  log_sum_exp_left_out,   ///< partial results joined with equal weights
  unseen_partial_joined,  ///< a partial result over no tokens has weight 1
  last_item_left_out,
};

struct EmulatedPass {
  FlattenPlan plan;
  std::span<const KvSlot> prefix;
  std::span<const VisibleKv> tail;
  std::int32_t grid = 1;              ///< blocks that take items in turn
  std::int64_t partial_capacity = 0;  ///< a partial result past it is an exception
};

/// [rows, heads, head_dim]. Arguments as in attention_reference(). Memory that no item wrote is
/// NaN.
std::vector<double> emulate_attention(const EmulatedPass& pass, const float* q,
                                      std::int64_t q_stride, float scale, const KvLayout& layout,
                                      const float* keys, const float* values, std::int32_t layer,
                                      FlattenFault fault = FlattenFault::none);

}  // namespace coppice::testing
