// Tokens that two computations of one text choose differently because their scores nearly tie.
#pragma once

#include <cmath>
#include <cstdint>
#include <vector>

#include "coppice.h"
#include "kernels/noise.h"

namespace coppice::testing {

/// How far apart the scores of two tokens are, of which one run chose `mine`, another `other`, at
/// this position of a text at temperature 0 or coupled.
inline double near_tie(const GenerateOptions& options, std::size_t position, std::int64_t vocab,
                       const TokenLogprob& mine, const TokenLogprob& other) {
  double gap = mine.logprob - other.logprob;
  if (options.sampling.temperature > 0.0) {
    std::vector<float> noise(static_cast<std::size_t>(vocab));
    inverse_exponential_noise(options.seed, options.stream, position, noise);
    gap += std::log(static_cast<double>(noise[static_cast<std::size_t>(mine.token)])) -
           std::log(static_cast<double>(noise[static_cast<std::size_t>(other.token)]));
  } else {
    // Both from the first run where it lists the other token.
    for (const auto& [token, logprob] : mine.top) {
      if (token == other.token) gap = mine.logprob - logprob;
    }
  }
  return std::abs(gap);
}

}  // namespace coppice::testing
