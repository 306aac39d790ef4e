// Measures a pair's acceptance by sibling rank.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "coppice.h"
#include "study/acceptance_file.h"

namespace coppice::study {

/// Ranks that are measured if nothing else is said; a vector ends with the last that was accepted.
inline constexpr std::int32_t usual_ranks = 16;

struct AcceptanceRequest {
  std::vector<std::vector<TokenId>> prompts;  ///< BOS included
  /// Temperatures, filters, penalty, acceptance, seed; what they say of trees is ignored.
  GenerateOptions sampling;
  std::int32_t ranks = usual_ranks;  ///< children of each root
  std::int32_t new_tokens = 64;
  std::function<void(double fraction)> progress;
  std::function<bool()> stop;
};

/// Continues texts with trees of `ranks` children of the root and counts which of them is accepted,
/// and of the nodes behind an accepted one, up to the engine's largest tree, whether their only
/// child is. nullopt where `stop` ended it. Throws Error(usage) for
/// ranks beyond the engine's largest tree and options that generate() refuses.
std::optional<MeasuredAcceptance> measure_acceptance(Engine& engine,
                                                     const AcceptanceRequest& request);

/// A pair as a file names it, without prompts and settings. Throws Error(failure) for a folder that
/// cannot be read.
MeasuredPair describe_pair(Engine& engine);

/// Texts for a measurement where nothing names any: written by the target, which leaves a study's
/// prompts alone, as long as context and KV memory allow. `new_tokens` is set to what fits.
std::vector<std::vector<TokenId>> calibration_prompts(Engine& engine, std::uint64_t seed,
                                                      std::int32_t& new_tokens);

}  // namespace coppice::study
