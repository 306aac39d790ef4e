// Tokens that two computations of one text choose differently because their scores nearly tie.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <vector>

#include "coppice.h"
#include "kernels/noise.h"
#include "reference/test_device.h"

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

/// What rounding may move the scores of two tokens apart by (identity_test.cc derives it).
inline double largest_near_tie(const GenerateOptions& options) {
  if (!on_cuda()) return 6e-4;
  return options.acceptance == Acceptance::coupled ? 0.25 : 0.2;
}

/// How many of so many tokens may nearly tie: none on a CPU, whose rows do not depend on their
/// neighbours.
inline std::int64_t most_near_ties(std::int64_t tokens) { return on_cuda() ? tokens / 200 : 0; }

/// That two texts of a request, with log-probabilities, are the same; where passes of other row
/// counts sum in another order, up to the first near-tie.
inline void expect_same_up_to_near_ties(const Request& request, std::int64_t vocab,
                                        const Generation& mine, const Generation& other) {
  if (mine.tokens == other.tokens) return;
  ASSERT_TRUE(on_cuda()) << "a CPU's rows do not depend on their neighbours";
  const std::size_t shorter = std::min(mine.tokens.size(), other.tokens.size());
  std::size_t same = 0;
  while (same < shorter && mine.tokens[same] == other.tokens[same]) ++same;
  ASSERT_LT(same, shorter) << "one text ended early";
  EXPECT_LT(near_tie(request.options, request.tokens.size() + same, vocab, mine.logprobs[same],
                     other.logprobs[same]),
            largest_near_tie(request.options))
      << "token " << same << ": " << other.tokens[same] << " instead of " << mine.tokens[same];
}

}  // namespace coppice::testing
