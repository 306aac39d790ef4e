// One work item of attention: the queries of a chunk that share a KV head.
#pragma once

#include <cstdint>

#include "kernels/attention_plan.h"
#include "kernels/device.h"

namespace coppice::cpu {

/// KV tokens whose scores are held at a time.
inline constexpr std::int32_t attention_block = 64;
/// Most rows of a tile (64 of wide tiles; narrow ones are smaller).
inline constexpr std::int32_t attention_rows = 64;

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
  float* partial_out;  ///< [partial][head][head_dim]; nullptr: the one chunk writes to `out`
  float* partial_lse;  ///< [partial][head]
};

/// Floats of scratch that a worker needs, for any number of rows.
std::int64_t attention_scratch_floats(std::int32_t head_dim);

/// Partial results of `chunk` for the query heads of `kv_head`.
void attend(const AttentionCall& call, std::int32_t chunk, std::int32_t kv_head, float* scratch);

/// Joins the partial results of queries [q_begin, q_end).
void join_partials(const AttentionCall& call, std::int32_t q_begin, std::int32_t q_end);

}  // namespace coppice::cpu
