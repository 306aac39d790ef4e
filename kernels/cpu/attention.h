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
// Every chunk c of the plan gives each of its queries and heads a partial result over the
// tokens T(c, q) that the query sees, normalised, with the log of its softmax sum:
//   lse = log sum_{t in T} exp(s_t),  o = sum_{t in T} exp(s_t - lse) v_t,  s_t = cap(scale q k_t)
// and partial results are joined exactly (DeFT, eq. 1):
//   out = sum_c exp(lse_c - m) o_c / sum_c exp(lse_c - m),  m = max_c lse_c
// By a window, T(c, q) are those of them that it leaves (AttentionRule); blocks of tokens that no
// row of a tile sees are neither read nor computed. A plan need not, but should, be one of the
// segments that trim_to_window() leaves. KV beyond windows is kept in the pool all the same.
// What a partial result is does not depend on the worker that computes it, so equal plans
// give equal bits at any number of threads.
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
