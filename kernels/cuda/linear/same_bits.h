// Whether two results are equal bit for bit. Not part of a pass.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace coppice::cuda {

/// Sets *differs to 1 where a bit of a and b [count] f32 differs, and leaves it as it was
/// otherwise. All in device memory.
void find_difference(const float* a, const float* b, std::int64_t count, std::int32_t* differs,
                     cudaStream_t stream);

}  // namespace coppice::cuda
