// Rotary embedding (Su et al., 2021) in Hugging Face's half-split layout, fused with the
// write into the KV pool.
//
//   qkv        [rows, (heads + 2 kv_heads) head_dim] f32: q heads, k heads, v heads
//   positions  [rows] index into the rope table (depth in the tree, not row in the batch)
//   slots      [rows] where k and v go, all different
//   keys, values  the pool of `layout`, of kv_dtype: rounded to nearest even (f16: finite values
//              beyond 65504 to that)
// For a head x and half = head_dim / 2, with c and s of the row's position:
//   y[i] = x[i] c[i] - x[i + half] s[i],  y[i + half] = x[i + half] c[i] + x[i] s[i]
// q is rotated in place; rotated k and plain v go to (layer, slot); the k and v parts of qkv
// stay as they were.
#pragma once

#include <span>

#include "kernels/device.h"

namespace coppice::cpu {

class Workers;

void rope_write_kv(float* qkv, std::int32_t heads, const RopeTable& rope,
                   std::span<const std::int32_t> positions, std::span<const KvSlot> slots,
                   const KvLayout& layout, DType kv_dtype, void* keys, void* values,
                   std::int32_t layer, Workers& workers);

}  // namespace coppice::cpu
