// Scores of a slice of a row's tokens, kept in registers: probability times noise. The largest
// scores are a sample without replacement, in order.
#pragma once

#include <cstdint>

#include "kernels/cuda/block_reduce.cuh"
#include "kernels/cuda/sampling/philox.cuh"
#include "kernels/cuda/sampling/row_distribution.cuh"

namespace coppice::cuda {

inline constexpr int slice_threads = 512;
inline constexpr int groups_per_thread = slice_tokens / slice_threads / 4;
inline constexpr int tokens_per_thread = 4 * groups_per_thread;
static_assert(groups_per_thread * slice_threads * 4 == slice_tokens);

/// Orders tokens by falling score and rising id; 0 for a token without score.
__device__ inline std::uint64_t placed(float score, std::int32_t token) {
  if (!(score > 0.0f)) return 0;
  return (std::uint64_t{__float_as_uint(score)} << 32) |
         (0xffffffffu - static_cast<std::uint32_t>(token));
}
__device__ inline std::int32_t placed_token(std::uint64_t place) {
  return static_cast<std::int32_t>(0xffffffffu - static_cast<std::uint32_t>(place));
}

__device__ inline float noise_of_token(const NoiseAddress& noise, std::int32_t token) {
  const RandomBlock bits = noise_bits(noise, static_cast<std::uint64_t>(token / 4));
  const int j = token % 4;
  const std::uint64_t upper =
      j < 2 ? (j == 0 ? bits.at[0] : bits.at[1]) : (j == 2 ? bits.at[2] : bits.at[3]);
  return inverse_exponential(upper);
}

/// Probability times noise, the bits that group_scores() gives.
__device__ inline float token_score(const Row& row, const RowStatistics& statistics,
                                    const NoiseAddress& noise, bool noisy, std::int32_t token) {
  const float prob = probability(statistics, cleaned(row.logits[token]), token);
  return noisy ? __fmul_rn(prob, noise_of_token(noise, token)) : prob;
}

/// A group's probabilities times noise, which is made only where a token has probability.
__device__ inline Quad with_noise(Quad quad, const NoiseAddress& noise, std::int32_t group) {
  const bool any = quad.at[0] > 0.0f || quad.at[1] > 0.0f || quad.at[2] > 0.0f || quad.at[3] > 0.0f;
  if (!any) return quad;
  const RandomBlock bits = noise_bits(noise, static_cast<std::uint64_t>(group));
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    quad.at[j] = __fmul_rn(quad.at[j], inverse_exponential(bits.at[j]));
  }
  return quad;
}

/// Scores of a group's tokens.
__device__ inline Quad group_scores(const Row& row, const RowStatistics& statistics,
                                    const NoiseAddress& noise, std::int32_t group) {
  return with_noise(row.probabilities(statistics, group), noise, group);
}

}  // namespace coppice::cuda
