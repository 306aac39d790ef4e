// Products with few rows, whose time is that of reading the weights: a kernel for GPUs of compute
// capability 9.0 that keeps many copies of weights in flight and asks for the first of them before
// the kernels that compute x have ended.
//
//   out[r, j] (+)= sum_i x[r, i] W[j, i] + bias[j]; operands as in linear.h
//
// One block per multiprocessor; each has an equal share of the outputs, by tiles of 16, and reads
// its weights front to back, once. Sums are f32, in an order that depends on (in, out) and the
// number of blocks alone, not on the rows: a row's result is the same bits whatever the other rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace coppice::cuda {

/// With more rows every block would read more of x than of its weights.
inline constexpr std::int32_t most_streamed_rows = 32;

/// Blocks of a launch; 0 where the current device or this build has no such kernel. Sets the
/// kernels' attributes.
std::int32_t prepare_streamed_linear();

/// Whether the kernel takes these shapes: at most most_streamed_rows, `in` a multiple of 64.
bool can_stream(std::int64_t in, std::int64_t out_features, std::int32_t rows);

/// `x`, `weights` and `out` aligned to 16 bytes; `bias` may be null; `rows` are all of x and out.
/// `blocks` from prepare_streamed_linear(), or fewer. May be captured.
void streamed_linear(const void* x, const void* weights, const float* bias, std::int32_t rows,
                     std::int64_t in, std::int64_t out_features, float* out, bool accumulate,
                     std::int32_t blocks, cudaStream_t stream);

}  // namespace coppice::cuda
