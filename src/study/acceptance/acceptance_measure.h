// Measures a pair's acceptance by sibling rank.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "coppice.h"
#include "study/acceptance/acceptance_file.h"

namespace coppice::study {

/// Ranks that are measured if nothing else is said; a vector ends with the last that was accepted.
inline constexpr std::int32_t usual_ranks = 16;

/// Judged and accepted children by rank, for estimate_acceptance (drafting/sequoia.h).
struct RankCounts {
  std::vector<std::int64_t> judged, accepted;
  void add(const TokenTree& tree, std::span<const std::int32_t> path);
};

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

/// Prompts of a measurement that names none.
inline constexpr std::int32_t calibration_count = 16;

/// What a measurement that names no prompts continues, so that a study's are left alone.
struct CalibrationPrompts {
  std::vector<StudyPrompt> of_file;  ///< empty: the target wrote them
  std::vector<std::vector<TokenId>> tokens;
  std::int32_t most_tokens = 0;  ///< of a prompt
  std::int32_t new_tokens = 0;   ///< that fit behind each
};

/// calibration_count of `spare`, evenly spread, if there are as many; else as many texts that the
/// target writes. `file` is where `spare` came from, `most_tokens` cuts its prompts (0: what fits).
CalibrationPrompts calibration_prompts(Engine& engine, const std::filesystem::path& file,
                                       const std::vector<StudyPrompt>& spare,
                                       std::int32_t most_tokens, std::uint64_t seed);

}  // namespace coppice::study
