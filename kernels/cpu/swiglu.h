// Gated activation of Llama's feed-forward layer (Shazeer, 2020):
//
//   out[r, i] = silu(gate_up[r, i]) * gate_up[r, n + i],  silu(x) = x / (1 + exp(-x))
//
//   gate_up  [rows, 2 n] f32: gate, then up (one stacked product)
//   out      [rows, n] f32, or bf16 rounded to nearest even
#pragma once

#include "kernels/device.h"

namespace coppice::cpu {

class Workers;

void swiglu(const float* gate_up, std::int32_t rows, std::int64_t n, DType out_dtype, void* out,
            Workers& workers);

}  // namespace coppice::cpu
