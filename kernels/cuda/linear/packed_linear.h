// Products with quantised weights on GPUs of compute capability 9.0: packed blocks
// (packed_layout.h) stream into shared memory and become bf16 in registers.
//
//   y[r, j] = sum_i x[r, i] W[j, i] + bias[j], x bf16
//
// One block per multiprocessor has an equal share of the outputs, by tiles of 16, and reads its
// weights front to back, once for every launch of at most most_packed_rows rows. The order of a
// sum depends on (in, out) and the number of blocks alone: a row's result is the same bits among
// any other rows, and in passes of any number of them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/linear/packed_layout.h"
#include "kernels/device.h"

namespace coppice::cuda {

struct RopeTensors;

/// Most rows of one launch, of E4M3 64: with more, sums take all registers.
inline constexpr std::int32_t most_packed_rows = 96;

/// Pointers aligned to 16 bytes; `rows` are all of x and of the results; `blocks` from
/// prepare_streamed_linear().
struct PackedProduct {
  const void* x;        ///< [rows, in] bf16
  const void* weights;  ///< packed
  PackedLayout layout;
  const float* bias;  ///< [out], or null
  std::int32_t rows;
  std::int64_t in;  ///< a multiple of packed_part
  std::int32_t blocks;
};

// All may be captured.
/// out [rows, stride] f32, the first `out_features` of each row, (+)= y.
void packed_linear(const PackedProduct& product, std::int64_t out_features, float* out,
                   std::int64_t stride, bool accumulate, cudaStream_t stream);
/// As streamed_gated_linear(); n is a multiple of packed_side.
void packed_gated_linear(const PackedProduct& product, Activation activation, std::int64_t n,
                         void* out, cudaStream_t stream);
/// As streamed_qkv().
void packed_qkv(const PackedProduct& product, const RopeTensors& tensors, cudaStream_t stream);

}  // namespace coppice::cuda
