// Weights on the device: conversion to bf16, and the search for values that are none.
// Device memory throughout; nothing here is part of a pass.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/device.h"

namespace coppice::cuda {

/// to[i] = from[i] rounded to nearest even; beyond bf16's range to infinity, NaN stays NaN.
///   from  [count] f32, f16 or bf16 (bf16 is copied bit for bit), aligned to 16 bytes
///   to    [count] bf16, aligned to 2 bytes, must not overlap `from`
void convert_to_bf16(const void* from, DType dtype, std::int64_t count, void* to,
                     cudaStream_t stream);

/// Sets *found to 1 where one of values [count] bf16 (aligned to 2 bytes) is NaN or infinite, and
/// leaves it as it was otherwise.
void find_non_finite(const void* values, std::int64_t count, std::int32_t* found,
                     cudaStream_t stream);

}  // namespace coppice::cuda
