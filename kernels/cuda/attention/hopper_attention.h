// Tree attention on GPUs of compute capability 9.0: behind tree_attention(), which has the
// tensors' layouts. One launch of at most one block per multiprocessor, each with an equal range
// of the work (kernels/cuda/attention/range_plan.h), all resident at a time.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "kernels/cuda/attention/attention.h"

namespace coppice::cuda {

/// Blocks of a launch, 0 where the current device or this build has no such kernel for head_dim.
/// Sets the kernels' attributes.
std::int32_t prepare_hopper_attention(std::int32_t head_dim);

/// Arguments as in tree_attention(); `launch` takes ranges; `blocks` from
/// prepare_hopper_attention(), or fewer.
void hopper_attention(const AttentionLaunch& launch, const PassView& pass, const void* q,
                      std::int64_t q_stride, const AttentionShape& shape, const AttentionRule& rule,
                      const KvLayout& layout, const void* keys, const void* values,
                      std::int32_t layer, void* out, const AttentionScratch& scratch,
                      std::int32_t blocks, cudaStream_t stream);

}  // namespace coppice::cuda
