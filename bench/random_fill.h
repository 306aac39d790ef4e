// Standard normal values in device memory: element i depends on the seed and i alone.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace coppice::bench {

/// [count] bf16.
void fill_normal_bf16(void* values, std::size_t count, std::uint64_t seed, cudaStream_t stream);

}  // namespace coppice::bench
