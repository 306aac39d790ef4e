// Root-mean-square normalisation (Zhang and Sennrich, 2019), as in Llama:
//
//   out[r, i] = x[r, i] / sqrt(mean_i(x[r, i]^2) + epsilon) * weight[i]
//
//   x       [rows, hidden] f32
//   weight  [hidden] f32
//   out     [rows, hidden] f32, or bf16 rounded to nearest even
//   into    [rows, hidden] f32, to which add_rms_norm() adds the result; must not overlap x
// The sum of squares runs in f32, in as many partial sums as the vector unit gives.
#pragma once

#include "kernels/device.h"

namespace coppice::cpu {

class Workers;

void rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
              std::int64_t hidden, DType out_dtype, void* out, Workers& workers);

void add_rms_norm(const float* x, const float* weight, float epsilon, std::int32_t rows,
                  std::int64_t hidden, float* into, Workers& workers);

}  // namespace coppice::cpu
