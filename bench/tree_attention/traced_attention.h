// When the blocks of the Hopper attention kernel get where.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

#include "input_sets.h"
#include "kernels/cuda/attention/attention.h"

namespace coppice::bench {

inline constexpr int traced_head_dim = 128;

/// Queues what tree_attention() queues for a set, with marks: nanoseconds[blocks.ranges]
/// [hopper::phases] on the device. For heads of 128, no rule, and kernels that take ranges.
void traced_attention(const AttentionLaunch& of, const cuda::PassView& pass,
                      const InputSets& inputs, std::int32_t set,
                      const cuda::AttentionScratch& scratch, std::int32_t blocks,
                      std::uint64_t* nanoseconds, cudaStream_t stream);

/// Queues a kernel that does nothing, launched as the attention kernel is.
void queue_nothing(std::int32_t blocks, cudaStream_t stream);

}  // namespace coppice::bench
