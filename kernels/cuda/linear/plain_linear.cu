#include <cuda_bf16.h>

#include "kernels/cuda/error.h"
#include "kernels/cuda/linear/plain_linear.h"
#include "kernels/cuda/vectors.cuh"

namespace coppice::cuda {
namespace {

constexpr int warp_size = 32;
constexpr int warps = column_threads / warp_size;

/// Blocks (rows, groups of `warps` outputs); a warp per output.
__global__ void plain_linear_kernel(const __nv_bfloat16* x, const __nv_bfloat16* weights,
                                    std::int64_t in, std::int64_t out_features, float* out,
                                    bool accumulate) {
  const std::int64_t row = blockIdx.x;
  const std::int64_t j = std::int64_t{blockIdx.y} * warps + threadIdx.x / warp_size;
  if (j >= out_features) return;  // whole warps
  const unsigned lane = threadIdx.x % warp_size;
  const __nv_bfloat16* values = x + row * in;
  const __nv_bfloat16* weight = weights + j * in;
  float sum = 0.0f;
  for (std::int64_t i = lane; i < in; i += warp_size) {
    sum += __bfloat162float(values[i]) * __bfloat162float(weight[i]);
  }
#pragma unroll
  for (int distance = warp_size / 2; distance > 0; distance /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, distance);
  }
  float* to = out + row * out_features + j;
  if (lane == 0) *to = accumulate ? *to + sum : sum;
}

/// Blocks (rows, column_blocks).
__global__ void add_bias_kernel(const float* bias, std::int64_t width, float* out) {
  const std::int64_t column = column_of_thread();
  if (column < width) out[std::int64_t{blockIdx.x} * width + column] += bias[column];
}

}  // namespace

void plain_linear(const void* x, const void* weights, std::int32_t rows, std::int64_t in,
                  std::int64_t out_features, float* out, bool accumulate, cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(rows),
                  static_cast<unsigned>((out_features + warps - 1) / warps));
  plain_linear_kernel<<<grid, column_threads, 0, stream>>>(
      static_cast<const __nv_bfloat16*>(x), static_cast<const __nv_bfloat16*>(weights), in,
      out_features, out, accumulate);
  check_launch("plain_linear");
}

void add_bias(const float* bias, std::int32_t rows, std::int64_t width, float* out,
              cudaStream_t stream) {
  const dim3 grid(static_cast<unsigned>(rows), column_blocks(width));
  add_bias_kernel<<<grid, column_threads, 0, stream>>>(bias, width, out);
  check_launch("add_bias");
}

}  // namespace coppice::cuda
