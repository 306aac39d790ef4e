// Products with few rows, whose time is that of reading the weights: a kernel for GPUs of compute
// capability 9.0 that keeps many copies of weights in flight and asks for the first of them before
// the kernels that compute x have ended.
//
//   out[r, j] (+)= sum_i x[r, i] W[j, i] + bias[j]; operands as in linear.h
//
// One block per multiprocessor; each has an equal share of the outputs, by tiles of 16, and reads
// its weights front to back, once. Blocks of a cluster read x together. Sums are f32, in an order
// that depends on (in, out) and the number of blocks alone, not on the rows: a row's result is the
// same bits whatever the other rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace coppice::cuda {

/// With more rows products bind, not reading.
inline constexpr std::int32_t most_streamed_rows = 80;

/// Blocks that the device holds at a time, alone and in clusters of 2 and 4.
struct StreamedBlocks {
  std::int32_t alone = 0;  ///< 0: the device or this build has no such kernel
  std::int32_t in_pairs = 0, in_fours = 0;

  std::int32_t of(std::int32_t cluster) const {
    return cluster == 1 ? alone : cluster == 2 ? in_pairs : in_fours;
  }
};

/// Of the current device; sets the kernels' attributes.
StreamedBlocks prepare_streamed_linear();

/// Whether the kernel takes these shapes: at most most_streamed_rows, `in` a multiple of 64.
bool can_stream(std::int64_t in, std::int64_t out_features, std::int32_t rows);

/// Blocks that share what they read of x: more with more rows, where x is much of what they read.
inline std::int32_t streaming_cluster(std::int32_t rows) {
  return rows <= 16 ? 1 : rows <= 32 ? 2 : 4;
}

/// `x`, `weights` and `out` aligned to 16 bytes; `bias` may be null; `rows` are all of x and out.
/// `blocks` from prepare_streamed_linear(); `cluster` is 1, 2, or, with more than 8 rows, 4. May be
/// captured.
void streamed_linear(const void* x, const void* weights, const float* bias, std::int32_t rows,
                     std::int64_t in, std::int64_t out_features, float* out, bool accumulate,
                     const StreamedBlocks& blocks, std::int32_t cluster, cudaStream_t stream);

}  // namespace coppice::cuda
