// The Hopper attention kernel by head dimension (64, 128): hopper_variants.cuh, compiled in a file
// for each.
#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/hopper_tiles.cuh"

namespace coppice::cuda::hopper {

Arguments make_arguments(const PassView& pass, const float* q, std::int64_t q_stride,
                         const AttentionShape& shape, float scale, const KvLayout& layout,
                         const void* keys, const void* values, std::int32_t layer, void* out,
                         const AttentionScratch& scratch);

/// Sets the attributes of every variant. Whether this build has their code for the current device.
template <int head_dim>
bool prepare_head();

/// Queues the variant for these tiles.
template <int head_dim>
void launch_head(RangeTiles tiles, const Arguments& arguments, std::int32_t blocks,
                 cudaStream_t stream);

}  // namespace coppice::cuda::hopper
