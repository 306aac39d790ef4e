// Linear layers without a library: what cublasLt has no code for. Correct for every shape, with no
// claim to speed. Device memory; may be captured; sums in f32 in an order that depends on `in`
// alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace coppice::cuda {

/// out[r, j] (+)= sum_i x[r, i] weights[j, i].
///   x        [rows, in] bf16
///   weights  [out_features, in] bf16
///   out      [rows, out_features] f32; its former value is added when `accumulate`
/// out_features is at most 2^19.
void plain_linear(const void* x, const void* weights, std::int32_t rows, std::int64_t in,
                  std::int64_t out_features, float* out, bool accumulate, cudaStream_t stream);

/// out[r, j] += bias[j]; out [rows, width] f32, bias [width] f32.
void add_bias(const float* bias, std::int32_t rows, std::int64_t width, float* out,
              cudaStream_t stream);

}  // namespace coppice::cuda
