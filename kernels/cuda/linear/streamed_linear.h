// Products of up to 96 rows, whose time is that of reading the weights: kernels for GPUs of compute
// capability 9.0 that keep many copies of weights in flight, ask for the first of them before the
// kernels that compute x have ended, and end in what a model does next with the product. Up to 16
// rows multiply by the products of single warps, more by those of warpgroups.
//
//   y[r, j] = sum_i x[r, i] W[j, i] + bias[j]; operands as in linear.h
//
// One block per multiprocessor; each, or each cluster of two, has an equal share of the outputs, by
// tiles of 16, and reads its weights front to back, once. Sums are f32, in an order that depends on
// (in, out) and the number of blocks, with more than 16 rows on their padded number, too: a row's
// result is the same bits whatever the other rows.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device.h"

namespace coppice::cuda {

struct RopeTensors;

/// With more rows what blocks read of x is no longer little beside their weights.
inline constexpr std::int32_t most_streamed_rows = 96;

/// Blocks that run at a time on the current device, 0 where it or this build has no such kernels.
std::int32_t prepare_streamed_linear();

/// Whether the kernels take these shapes: at most most_streamed_rows, `in` a multiple of 64.
bool can_stream(std::int64_t in, std::int64_t out_features, std::int32_t rows);
/// Whether streamed_qkv() takes these heads: of a multiple of 16 elements, rotated whole, without
/// norms.
bool can_rotate(const RopeTensors& tensors);

/// Pointers aligned to 16 bytes; `rows` are all of x and of the results; `blocks` from
/// prepare_streamed_linear().
struct StreamedProduct {
  const void* x;        ///< [rows, in] bf16
  const void* weights;  ///< [out, in] bf16
  const float* bias;    ///< [out], or null
  std::int32_t rows;
  std::int64_t in;
  std::int32_t blocks;
};

// All may be captured.
/// out [rows, out_features] f32 (+)= y.
void streamed_linear(const StreamedProduct& product, std::int64_t out_features, float* out,
                     bool accumulate, cudaStream_t stream);
/// y has 2 n outputs, gate then up; out [rows, n] bf16 as of glu().
void streamed_gated_linear(const StreamedProduct& product, Activation activation, std::int64_t n,
                           void* out, cudaStream_t stream);
/// y is [rows, (heads + 2 kv_heads) head_dim] and goes where rope_write_kv() takes it; the k and v
/// parts of qkv are not written.
void streamed_qkv(const StreamedProduct& product, const RopeTensors& tensors, cudaStream_t stream);

}  // namespace coppice::cuda
