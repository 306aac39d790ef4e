// Logits processing, drawing and residuals as their definitions read, in double.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/sampling_params.h"

namespace coppice::testing {

/// kernels/logits.h process_logits by full sorting. `seen[token]` tells which tokens the penalty
/// concerns (empty: none), `fresh[token]` how often frequency and presence penalty count it
/// (likewise). `near_edge`, if given, is set when a filter's decision hangs on a
/// relative difference below 1e-5, so that arithmetic in float may decide otherwise.
std::vector<double> naive_process(std::span<const float> logits, const SamplingParams& params,
                                  const std::vector<bool>& seen = {}, bool* near_edge = nullptr,
                                  const std::vector<std::int32_t>& fresh = {});

}  // namespace coppice::testing
