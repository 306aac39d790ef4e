// Noise of kernels/cuda/sampling/philox.cuh, made visible to tests.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "base/random.h"

namespace coppice::testing {

/// out[i] = 1 / E of random bits[i], i < count.
void probe_inverse_exponential(const std::uint64_t* bits, std::int32_t count, float* out,
                               cudaStream_t stream);
/// out[token] = coupled 1 / E at key.position + depth, token < count.
void probe_coupled_noise(const StepKey& key, std::int32_t depth, std::int32_t count, float* out,
                         cudaStream_t stream);

}  // namespace coppice::testing
