#pragma once

#include <cuda_runtime_api.h>

namespace coppice::bench {

/// Flops per second of a product of two random 8192 x 8192 matrices in bf16, accumulated in f32,
/// by cublasLt: the best of the algorithms that it proposes, median time of each.
double matrix_rate(cudaStream_t stream);

}  // namespace coppice::bench
