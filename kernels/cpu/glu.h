// Gated linear unit of a feed-forward layer (Shazeer, 2020), after its products:
//
//   out[r, i] = activation(gate_up[r, i]) * gate_up[r, n + i]
//
//   gate_up  [rows, 2 n] f32: gate, then up (one stacked product)
//   out      [rows, n] f32, or bf16 rounded to nearest even
// Both activations are x / (1 + exp(-t)): of silu t = x, of gelu_tanh, as (1 + tanh(z)) / 2 is the
// logistic function of 2 z, t = sqrt(8 / pi) (x + 0.044715 x^3).
#pragma once

#include "kernels/device.h"

namespace coppice::cpu {

class Workers;

void glu(Activation activation, const float* gate_up, std::int32_t rows, std::int64_t n,
         DType out_dtype, void* out, Workers& workers);

}  // namespace coppice::cpu
