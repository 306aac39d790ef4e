// Rotary frequencies of a model, as Hugging Face computes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/device.h"
#include "models/config.h"

namespace coppice {

/// theta^(-2 i / rotated) for i in [0, rotated / 2), scaled as `rope` says, in f32 step by step as
/// transformers does: they are part of the model. LongRoPE's long factors are those of a model
/// loaded for more than the original context of `positions`: transformers changes over when a text
/// grows beyond it, but keys that are kept have been rotated.
std::vector<float> rope_frequencies(const RopeSpec& rope, std::int32_t positions);

/// Bytes that make_rope_table() allocates.
std::size_t rope_table_bytes(const RopeSpec& rope, std::int32_t positions);

/// cos and sin of position * frequency for positions [0, positions), times attention_factor. Angles
/// are exact: in f32 those of position 100,000 would be off by up to 1/256.
RopeTable make_rope_table(const RopeSpec& rope, std::int32_t positions, Device& device);

}  // namespace coppice
