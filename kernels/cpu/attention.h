// Attention of a token tree by a plan (DeFT-Flatten, phase 2).
//
//   q       row r, head h: q[r * q_stride + h * head_dim ..], f32; heads = group * kv_heads,
//           head h uses KV head h / group
//   keys, values  the pool of `layout`, of kv_dtype, read in place by the plan's slots; 16 bits are
//           widened, all arithmetic is in f32
//   out     [queries, heads, head_dim] f32, or bf16 rounded to nearest even
//   head_dim  any; multiples of 16 are vectorised
//   positions [queries], of the rows; read where the rule has a window
//
// Every chunk c of the plan gives each of its queries and heads a partial result over the tokens
// T(c, q) that the query sees, not normalised, with its maximum score and the sum of its weights:
//   m = max_{t in T} s_t,  w_t = exp(s_t - m),  o = sum w_t v_t,  z = sum w_t,
//   s_t = cap(scale q k_t)
// and partial results are joined exactly, in the order of chunks (DeFT, eq. 1):
//   out = sum_c exp(m_c - M) o_c / sum_c exp(m_c - M) z_c,  M = max_c m_c
// By a window, T(c, q) are those of them that it leaves (AttentionRule); tokens that no row of a
// tile sees are neither read nor computed. A plan need not, but should, be one of the segments that
// trim_to_window() leaves. KV beyond windows is kept in the pool all the same.
//
// By a plan of flatten a row's result depends on its query and on the keys and values that it sees,
// by their positions, and on nothing else: the same bits alone or in a tree, in a text's first pass
// or in a later one, beside any texts, by any number of threads.
#pragma once

#include <memory>

#include "kernels/attention_plan.h"
#include "kernels/device.h"

namespace coppice::cpu {

class Workers;

/// Holds the scratch memory, which grows with the largest plan seen. Not for several threads
/// at a time.
class AttentionEngine {
 public:
  explicit AttentionEngine(Workers& workers);
  ~AttentionEngine();

  void run(const AttentionPlan& plan, std::span<const std::int32_t> positions, const float* q,
           std::int64_t q_stride, std::int32_t heads, const AttentionRule& rule,
           const KvLayout& layout, DType kv_dtype, const void* keys, const void* values,
           std::int32_t layer, DType out_dtype, void* out);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace coppice::cpu
