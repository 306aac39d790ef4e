// One work item of attention: rows that share a KV head, over chunks of their text.
#pragma once

#include <cstdint>

#include "kernels/attention_plan.h"
#include "kernels/device.h"

namespace coppice::cpu {

/// Most rows of an item, and of a tile (64 of wide tiles; narrow ones are smaller).
inline constexpr std::int32_t attention_rows = 64;
/// Tokens whose keys or values are widened at a time.
inline constexpr std::int32_t attention_widened = 64;

/// Packed rows [row_begin, row_end) of a text and a KV head over chunks [chunk_begin, chunk_end) of
/// the plan. Packed row r is query q_begin + r / group, head kv_head * group + r % group.
struct AttentionItem {
  std::int32_t q_begin;
  std::int32_t row_begin, row_end;
  std::int32_t chunk_begin, chunk_end;
  /// The chunks are all that the rows see: their result is the output. Else each chunk's result is
  /// kept for join_partials(), at its place in the plan less `partial_shift`.
  bool whole;
  std::int32_t partial_shift;
};

struct AttentionCall {
  const AttentionPlan* plan;
  const float* q;
  std::int64_t q_stride;
  std::int32_t heads, group;  ///< group: query heads per KV head
  AttentionRule rule;
  const std::int32_t* positions;  ///< by query; read where the rule has a window
  const KvLayout* layout;
  const void* keys;    ///< first page of the layer, of kv_dtype
  const void* values;  ///< first page of the layer, of kv_dtype
  DType kv_dtype;
  bool far;  ///< the pass's KV, all layers together, is more than caches keep
  DType out_dtype;
  void* out;
  std::int32_t longest;  ///< tokens of a chunk
  // Partial results, not normalised.
  float* partial_out;      ///< [partial][head][head_dim]
  float* partial_maximum;  ///< [partial][head], of scores to base 2
  float* partial_sum;      ///< [partial][head]
};

/// Floats of scratch that a worker needs, for any number of rows; `longest`: tokens of a chunk.
std::int64_t attention_scratch_floats(std::int32_t head_dim, std::int32_t longest);

void attend(const AttentionCall& call, const AttentionItem& item, std::int32_t kv_head,
            float* scratch);

/// Joins the partial results of queries [q_begin, q_end), which their items left at their places
/// less `partial_shift`.
void join_partials(const AttentionCall& call, std::int32_t q_begin, std::int32_t q_end,
                   std::int32_t partial_shift);

}  // namespace coppice::cpu
