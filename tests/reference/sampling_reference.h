// Drawing and judging as their definitions read, in double, with bounds on how far arithmetic in
// float may be from it: a decision within the bound is called uncertain, and tests pass it over.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/random.h"
#include "base/sampling_params.h"
#include "kernels/device_sampler.h"

namespace coppice::testing {

/// A row's distribution, and by how much each float probability may be off. With w the weights
/// exp((x - max) / T), computed from three rounded floats (difference, 1/T, product) and an
/// exponential good to 2 ulp, a weight is right to 3 u |log w| + 4 u, u = 2^-24; their sum to
/// 3 u log(vocabulary) + 7 u, since the mean of |log w| under the distribution is at most the
/// logarithm of the vocabulary; the quotient adds 2 u. For vocabularies up to 2^19 that is less
/// than 4e-6 + 1.8e-7 |log w|. Below 1e-37 floats lose digits.
struct Law {
  std::vector<double> probs;
  std::vector<double> error;
  bool near_edge = false;  ///< a filter's decision hangs on rounding
};
Law reference_law(std::span<const float> logits, const SamplingParams& params,
                  const std::vector<bool>& seen = {});

/// Noise E of tokens [0, vocab): AcceptanceRule::rejection by node, coupled by position.
std::vector<double> sampled_noise(const StepKey& key, std::uint64_t node_key, std::size_t vocab);
std::vector<double> coupled_noise(const StepKey& key, std::int32_t depth, std::size_t vocab);

/// Relative error of a device's 1 / E (kernels/cuda/sampling/philox.cuh).
inline constexpr double noise_error = 5e-7;

/// The rows of a judged tree, with a law for every row.
struct JudgedTree {
  StepKey key;
  AcceptanceRule rule = AcceptanceRule::rejection;
  std::vector<TokenId> token;
  std::vector<std::int32_t> parent, depth, rank;
  std::vector<Law> target, draft;  ///< by row; draft of rows with children, over target's tokens
  std::vector<std::uint8_t> certain = {};  ///< by row: from no distribution; empty: none is
};

struct JudgedPath {
  std::vector<std::int32_t> rows;
  TokenId bonus = -1;
  bool certain = true;
};

/// verify/: recursive rejection, shared noise or the argmax, by tree.rule.
JudgedPath reference_judge(const JudgedTree& tree);

}  // namespace coppice::testing
