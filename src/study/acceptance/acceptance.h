// Acceptance by sibling rank, measured on a pair of models: what Sequoia's trees are planned for
// (drafting/sequoia.h). A file keeps it with all that it depends on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/token_tree.h"
#include "coppice.h"
#include "drafting/sequoia.h"
#include "study/files/member_list.h"
#include "study/hooks.h"
#include "study/prompts/prompts.h"

namespace coppice::study {

/// A vector and the settings that it holds for.
struct MeasuredAcceptance {
  double temperature = 0.0, draft_temperature = 0.0;
  Acceptance acceptance = Acceptance::rejection;
  double repetition_penalty = 1.0, top_p = 1.0, min_p = 0.0;
  std::int32_t top_k = 0;
  // By rank, as estimate_acceptance() takes them:
  std::vector<std::int64_t> judged, accepted;
  std::vector<double> acceptance_vector;

  COPPICE_MEMBERS(temperature, acceptance, draft_temperature, repetition_penalty, top_k, top_p,
                  min_p, judged, accepted, acceptance_vector)
};

/// The request's settings, without a vector.
MeasuredAcceptance acceptance_settings_of(const GenerateOptions& request);

/// One measurement of a pair. Files are JSON: {"format": "coppice acceptance", ...}.
struct MeasuredPair {
  struct ModelFolder {
    std::string path, fingerprint;  ///< fingerprint_of_folder()

    COPPICE_MEMBERS(path, fingerprint)
  };
  ModelFolder target, draft;
  std::string prompts;                     ///< their file; empty: the target wrote them
  std::vector<std::string> prompt_prints;  ///< of each that came from a file, print_of()
  std::int32_t prompt_count = 0, prompt_tokens = 0, new_tokens = 0;
  std::uint64_t seed = 0;
  std::string device, dtype;
  std::vector<MeasuredAcceptance> settings;

  COPPICE_MEMBERS(target, draft, prompts, prompt_prints, prompt_count, prompt_tokens, new_tokens,
                  seed, device, dtype, settings)
};

/// Throws Error(failure).
void write_measured_pair(const std::filesystem::path& file, const MeasuredPair& pair);
/// Throws Error(failure) that names the file and the place in it: no such file, not whole, no file
/// of this kind, counts that are none, a vector that its counts do not make.
MeasuredPair read_measured_pair(const std::filesystem::path& file);

/// Writes a grow map (drafting/sequoia.h) for one setting of a pair, which it names. Throws
/// Error(failure).
void write_planned_map(const std::filesystem::path& file, const GrowMap& map,
                       const MeasuredPair& pair, const MeasuredAcceptance& setting);
/// What a grow map of write_planned_map() was made for and the request is not, as an error's text;
/// empty if nothing differs or the map does not say. Throws Error(failure) as reading does.
std::string map_mismatch(const std::filesystem::path& file, const EngineOptions& engine,
                         const GenerateOptions& request);

// The checks below throw Error(usage), which names `file` and what differs.

/// The file was measured on the models of `engine`.
void require_pair(const std::filesystem::path& file, const MeasuredPair& pair,
                  const EngineOptions& engine);
/// How many of `prompts` are among those that the pair was measured on.
std::size_t measured_on(const MeasuredPair& pair, const std::vector<StudyPrompt>& prompts);
/// None of `prompts` is.
void require_other_prompts(const std::filesystem::path& file, const MeasuredPair& pair,
                           const std::vector<StudyPrompt>& prompts);
/// The vector for a request's temperatures, acceptance rule, filters and penalty.
const MeasuredAcceptance& setting_for(const std::filesystem::path& file, const MeasuredPair& pair,
                                      const GenerateOptions& request);

/// The same; nullptr if there is none.
const MeasuredAcceptance* find_setting(const MeasuredPair& pair, const GenerateOptions& request);

/// What to plan for: the vector, or where no child was ever accepted a guess of the first one's
/// chance, so that there is a tree.
std::vector<double> vector_to_plan_for(const MeasuredAcceptance& setting);

/// "temperature 0.6, rejection", and what else is not as usual.
std::string words_of(const MeasuredAcceptance& setting);
std::string words_of(const std::vector<MeasuredAcceptance>& settings);

// Measures a pair's acceptance by sibling rank.

/// Ranks that are measured if nothing else is said; a vector ends with the last that was accepted.
inline constexpr std::int32_t usual_ranks = 16;

/// Judged and accepted children by rank, for estimate_acceptance (drafting/sequoia.h).
struct RankCounts {
  std::vector<std::int64_t> judged, accepted;
  void add(const TokenTree& tree, std::span<const std::int32_t> path);
};

struct AcceptanceRequest : StudyHooks {
  std::vector<std::vector<TokenId>> prompts;  ///< BOS included
  /// Temperatures, filters, penalty, acceptance, seed; what they say of trees is ignored.
  GenerateOptions sampling;
  std::int32_t ranks = usual_ranks;  ///< children of each root
  std::int32_t new_tokens = 64;
};

/// Continues texts with trees of `ranks` children of the root and counts which of them is accepted,
/// and of the nodes behind an accepted one, up to the engine's largest tree, whether their only
/// child is. nullopt where `stop` ended it. Throws Error(usage) for
/// ranks beyond the engine's largest tree and options that generate() refuses.
std::optional<MeasuredAcceptance> measure_acceptance(Engine& engine,
                                                     const AcceptanceRequest& request);

/// Measures every one of `settings` as `request` says otherwise, and adds what came of it to the
/// pair: settings, number of prompts and of new tokens. The request's progress is that of all.
/// False: stopped. Throws as measure_acceptance().
bool measure_settings(Engine& engine, AcceptanceRequest request,
                      const std::vector<GenerateOptions>& settings, MeasuredPair& pair);
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
