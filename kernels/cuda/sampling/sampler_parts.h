// What the sampler's files share.
#pragma once

#include <cstddef>
#include <cstdint>

#include "base/error.h"
#include "base/sampling_params.h"
#include "kernels/device_sampler.h"

namespace coppice::cuda {

inline std::size_t to_size(std::int64_t n) { return static_cast<std::size_t>(n); }

inline bool is_penalised(const PenaltyText* text, const SamplingParams& params) {
  return text != nullptr && params.repetition_penalty != 1.0;
}

/// Whether a row needs the tokens of its path.
inline bool needs_path(const PenaltyText* text, const SamplingParams& params) {
  return text != nullptr && params.penalises();
}

[[noreturn]] inline void throw_no_finite_logit(const char* model, std::size_t row) {
  throw_failure(cat("logits: row ", row, " of the ", model,
                    " has no finite value; the model's weights or its arithmetic are broken"));
}

}  // namespace coppice::cuda
