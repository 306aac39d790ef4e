// What of a sequence changes logits, for a device's sampler.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/device_sampler.h"
#include "models/sequence_state.h"

namespace coppice {

/// Whether anything of the text changes logits, masks aside.
inline bool changes_logits(const SequenceState& text, const SamplingParams& params) {
  return params.penalises() || !text.bias.empty();
}

/// The text with the nodes of a tree. All that it is made of outlives what is returned.
inline PenaltyText penalty_text(const SequenceState& text, std::span<const TokenId> node_token,
                                std::span<const std::int32_t> node_parent) {
  return {&text.counts, node_token, node_parent, text.new_counts ? &text.new_counts : nullptr,
          text.bias};
}

}  // namespace coppice
