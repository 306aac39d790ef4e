// Rotary frequencies of a model, as Hugging Face computes them.
#pragma once

#include <cstdint>
#include <vector>

#include "kernels/device.h"
#include "models/config.h"

namespace coppice {

/// theta^(-2 i / head_dim) for i in [0, head_dim / 2), scaled as the config says, in f32 step by
/// step as transformers does: a rounding apart moves near-ties.
std::vector<float> rope_frequencies(const ModelConfig& config);

/// cos and sin of f32(position) * frequency for positions [0, positions).
RopeTable make_rope_table(const ModelConfig& config, std::int32_t positions, Device& device);

}  // namespace coppice
