// Rotary embedding (Su et al., 2021) in Hugging Face's half-split layout, after a norm of each head
// if the model has one (Qwen 3, Gemma 3), fused with the write into the KV pool.
//
//   qkv        [rows, (heads + 2 kv_heads) head_dim] f32: q heads, k heads, v heads
//   positions  [rows] index into the rope table (depth in the tree, not row in the batch)
//   slots      [rows] where k and v go, all different
//   keys, values  the pool of `layout`, of kv_dtype: rounded to nearest even (f16: finite values
//              beyond 65504 to that)
// For a head x, normed as by rms_norm.h with the norm of its kind, and half = rope.half_dim, with c
// and s of the row's position:
//   y[i] = x[i] c[i] - x[i + half] s[i],  y[i + half] = x[i + half] c[i] + x[i] s[i]  for i < half,
//   y[i] = x[i]  for i >= 2 half (partial rotation: Phi)
// q is rotated in place; rotated k and plain v go to (layer, slot). The v part of qkv stays as it
// was, and so does the k part, but for a norm.
#pragma once

#include <span>

#include "kernels/device.h"

namespace coppice::cpu {

class Workers;

void rope_write_kv(float* qkv, std::span<const std::int32_t> positions,
                   std::span<const KvSlot> slots, const QkvOutput& to, DType kv_dtype,
                   Workers& workers);

}  // namespace coppice::cpu
