#include "cuda/noise_probe.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/sampling/token_scores.cuh"

namespace coppice::testing {
namespace {

constexpr int threads = 256;

__global__ void inverse_exponential_kernel(const std::uint64_t* bits, std::int32_t count,
                                           float* out) {
  const auto i = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (i < count) out[i] = cuda::inverse_exponential(bits[i]);
}

__global__ void coupled_noise_kernel(StepKey key, std::int32_t depth, std::int32_t count,
                                     float* out) {
  const auto token = static_cast<std::int32_t>(blockIdx.x * blockDim.x + threadIdx.x);
  if (token < count) out[token] = cuda::noise_of_token(cuda::coupled_noise(key, depth), token);
}

unsigned blocks_for(std::int32_t count) {
  return static_cast<unsigned>((count + threads - 1) / threads);
}

}  // namespace

void probe_inverse_exponential(const std::uint64_t* bits, std::int32_t count, float* out,
                               cudaStream_t stream) {
  inverse_exponential_kernel<<<blocks_for(count), threads, 0, stream>>>(bits, count, out);
  cuda::check_launch("inverse_exponential");
}

void probe_coupled_noise(const StepKey& key, std::int32_t depth, std::int32_t count, float* out,
                         cudaStream_t stream) {
  coupled_noise_kernel<<<blocks_for(count), threads, 0, stream>>>(key, depth, count, out);
  cuda::check_launch("coupled_noise");
}

}  // namespace coppice::testing
