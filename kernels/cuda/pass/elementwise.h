// Operations on rows: everything of a pass that is neither a product with weights nor attention.
//
// What each one computes is stated in kernels/cpu/{embedding,rms_norm,rope,glu,gather,soft_cap}.h;
// here is what differs on the GPU:
//  - activations are bf16, rounded to nearest even once, from f32 arithmetic
//  - `rows` is the row count of the launch, padding included; row r may be padding (PassView)
//  - row widths go up to 2^23 and need not be a multiple of anything; where they are of 4 (half a
//    head's, and what is rotated of it, for rope_write_kv) and pointers are aligned to 16 bytes
//    (16-bit types: 8), rows move in vectors of 4 elements
//  - rows = 0 launches nothing
// All pointers are device memory. All functions may be captured in a CUDA graph; all results are
// the same in every run, and a row's do not depend on the other rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/pass/pass_view.h"
#include "kernels/device.h"

namespace coppice::cuda {

/// out[r, :] = scale * table[pass.tokens[r], :], exact with a scale of 1.
///   table  [vocab, hidden] `dtype`, tokens in [0, vocab)
///   out    [rows, hidden] f32
void embed(const PassView& pass, const void* table, DType dtype, std::int64_t hidden, float scale,
           float* out, std::int32_t rows, cudaStream_t stream);

/// out[r, i] = x[r, i] / sqrt(mean(x[r, :]^2) + epsilon) * weight[i].
///   x       [rows, hidden] f32
///   weight  [hidden] f32
///   out     [rows, hidden] bf16, must not overlap x
/// The sum of squares runs in f32; its order depends on hidden and on whether rows can move in
/// vectors.
void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
              std::int64_t hidden, void* out, cudaStream_t stream);
/// into[r, :] += the same, f32; `into` must not overlap x.
void add_rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                  std::int64_t hidden, float* into, cudaStream_t stream);
/// add_rms_norm() and then rms_norm() of `into` with `next_weight`: the same bits as the two, in
/// one kernel where vectors of a row fit into a block's registers (hidden up to 8192).
void add_rms_norm_then_norm(const float* x, const float* weight, const float* next_weight,
                            float epsilon, std::int32_t rows, std::int64_t hidden, float* into,
                            void* out, cudaStream_t stream);

/// Norms and rotates q, which becomes bf16 at the beginning of each head's place in qkv, and writes
/// normed and rotated k and plain v into pass.write_slots[r] of the layer. Rows with no_slot write
/// no KV; their q is rotated like any other. The k and v parts of qkv stay as they were.
///   qkv           [rows, (heads + 2 kv_heads) head_dim] f32, head_dim even and at most 512
///   rope          tables of half_dim <= head_dim / 2; pass.positions in [0, rope.positions)
///   keys, values  bf16 in `layout`, slots in [0, layout.slots()) and all different
void rope_write_kv(const PassView& pass, float* qkv, const QkvOutput& to, std::int32_t rows,
                   cudaStream_t stream);

/// out[r, i] = activation(gate_up[r, i]) * gate_up[r, n + i].
///   gate_up  [rows, 2 n] f32: gate, then up
///   out      [rows, n] bf16
void glu(Activation activation, const float* gate_up, std::int32_t rows, std::int64_t n, void* out,
         cudaStream_t stream);

/// out[i, :] = x[pass.logit_rows[i], :], bit for bit.
///   x    [*, width] elements of 4 bytes (f32, or pairs of bf16)
///   out  [rows, width], must not overlap x; `rows` counts logit rows, padding included
void gather_logit_rows(const PassView& pass, const float* x, std::int64_t width, float* out,
                       std::int32_t rows, cudaStream_t stream);

/// logits[r, i] = cap * tanh(logits[r, i] / cap), in place.
///   logits  [rows, width] f32
void soft_cap(float* logits, std::int32_t rows, std::int64_t width, float cap, cudaStream_t stream);

}  // namespace coppice::cuda
