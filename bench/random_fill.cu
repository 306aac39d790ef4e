#include <cuda_bf16.h>

#include "bench/random_fill.h"
#include "kernels/cuda/error.h"

namespace coppice::bench {
namespace {

constexpr int fill_threads = 256;
constexpr int fill_blocks = 2048;

/// A bijection of 64-bit numbers whose outputs of neighbours look unrelated (multiply and xor
/// shift rounds with odd constants).
__device__ std::uint64_t scrambled(std::uint64_t x) {
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  x *= 0xd6e8feb86659fd93ull;
  x ^= x >> 32;
  return x;
}

__device__ float normal(std::uint64_t seed, std::size_t index) {
  const std::uint64_t bits = scrambled(seed * 0x9e3779b97f4a7c15ull + index + 1);
  // Box and Muller; the first uniform lies in (0, 1].
  const float first = (static_cast<float>(bits >> 40) + 1.0f) * 0x1p-24f;
  const float second = static_cast<float>((bits >> 8) & 0xffffffu) * 0x1p-24f;
  return sqrtf(-2.0f * logf(first)) * cospif(2.0f * second);
}

__global__ void __launch_bounds__(fill_threads)
    fill(__nv_bfloat16* values, std::size_t count, std::uint64_t seed) {
  const std::size_t step = std::size_t{gridDim.x} * fill_threads;
  for (std::size_t i = std::size_t{blockIdx.x} * fill_threads + threadIdx.x; i < count; i += step) {
    values[i] = __float2bfloat16_rn(normal(seed, i));
  }
}

}  // namespace

void fill_normal_bf16(void* values, std::size_t count, std::uint64_t seed, cudaStream_t stream) {
  fill<<<fill_blocks, fill_threads, 0, stream>>>(static_cast<__nv_bfloat16*>(values), count, seed);
  cuda::check_launch("random bf16 values");
}

}  // namespace coppice::bench
