// The Hopper attention kernel by head dimension: 64 and 128, and what obeys rules, 64, 128 and 256.
// hopper_variants.cuh, compiled in a file for each.
#pragma once

#include "kernels/cuda/attention/attention.h"
#include "kernels/cuda/attention/hopper_tiles.cuh"

namespace coppice::cuda::hopper {

/// Makes the arguments of launch_window_or_cap() if the layer has a rule or its heads no plain
/// kernel, else of launch_head(): their tensor maps differ.
Arguments make_arguments(const PassView& pass, const void* q, std::int64_t q_stride,
                         const AttentionShape& shape, const AttentionRule& rule,
                         const KvLayout& layout, const void* keys, const void* values,
                         std::int32_t layer, void* out, const AttentionScratch& scratch);

/// Sets the attributes of every variant. Whether this build has their code for the current device.
template <int head_dim>
bool prepare_head();

/// Queues the variant for these tiles.
template <int head_dim>
void launch_head(const AttentionLaunch& attention, const Arguments& arguments, std::int32_t blocks,
                 cudaStream_t stream);

/// The same for variants with a window or a soft cap, of heads of at most head_dim elements.
template <int head_dim>
bool prepare_window_or_cap();
template <int head_dim>
void launch_window_or_cap(const AttentionLaunch& attention, const Arguments& arguments,
                          std::int32_t blocks, cudaStream_t stream);

}  // namespace coppice::cuda::hopper
