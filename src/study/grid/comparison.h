// Rows of tables against each other, prompt by prompt.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "study/statistics.h"

namespace coppice::study {

using Values = std::vector<double>;

/// What a row brought, by prompt, [prompts], in one order for all rows that are compared.
struct PromptColumns {
  Values judged_good;     ///< tokens judged good, the bonus tokens included
  Values steps;           ///< target passes after prefill
  Values decoded;         ///< new tokens, without those that came with prefill
  Values decode_seconds;  ///< all after prefill
};

/// Two rows on the same prompts: their difference is resampled, not each of them by itself, so that
/// it can be clear where their own intervals overlap.
struct Comparison {
  std::size_t first = 0, second = 0;  ///< places of the rows
  Tested accepted_length;             ///< the first's less the second's, in tokens; none: 0
  Tested speed;  ///< the first's tokens/s, prefill left out, over the second's; none: 1
};

/// Compares rows[first] with rows[second] for every one of `which`. Holm's family is all of
/// `which`, for accepted length and for speed apart. The ratio of speeds is tested as a logarithm.
std::vector<Comparison> compare_rows(std::span<const PromptColumns> rows,
                                     std::span<const std::pair<std::size_t, std::size_t>> which,
                                     const BootstrapOptions& options = {});

}  // namespace coppice::study
