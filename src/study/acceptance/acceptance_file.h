// Acceptance by sibling rank, measured on a pair of models: what Sequoia's trees are planned for
// (drafting/sequoia.h). A file keeps it with all that it depends on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "coppice.h"
#include "drafting/sequoia.h"
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
  std::vector<double> vector;

  static void members(auto& self, auto visit) {
    visit("temperature", self.temperature);
    visit("acceptance", self.acceptance);
    visit("draft_temperature", self.draft_temperature);
    visit("repetition_penalty", self.repetition_penalty);
    visit("top_k", self.top_k);
    visit("top_p", self.top_p);
    visit("min_p", self.min_p);
    visit("judged", self.judged);
    visit("accepted", self.accepted);
    visit("acceptance_vector", self.vector);
  }
};

/// The request's settings, without a vector.
MeasuredAcceptance acceptance_settings_of(const GenerateOptions& request);

/// One measurement of a pair. Files are JSON: {"format": "coppice acceptance", ...}.
struct MeasuredPair {
  struct ModelFolder {
    std::string path, fingerprint;  ///< fingerprint_of_folder()

    static void members(auto& self, auto visit) {
      visit("path", self.path);
      visit("fingerprint", self.fingerprint);
    }
  };
  ModelFolder target, draft;
  std::string prompts;                     ///< their file; empty: the target wrote them
  std::vector<std::string> prompt_prints;  ///< of each that came from a file, print_of()
  std::int32_t prompt_count = 0, prompt_tokens = 0, new_tokens = 0;
  std::uint64_t seed = 0;
  std::string device, dtype;
  std::vector<MeasuredAcceptance> settings;

  static void members(auto& self, auto visit) {
    visit("target", self.target);
    visit("draft", self.draft);
    visit("prompts", self.prompts);
    visit("prompt_prints", self.prompt_prints);
    visit("prompt_count", self.prompt_count);
    visit("prompt_tokens", self.prompt_tokens);
    visit("new_tokens", self.new_tokens);
    visit("seed", self.seed);
    visit("device", self.device);
    visit("dtype", self.dtype);
    visit("settings", self.settings);
  }
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

/// Whether setting_for() finds what the request needs.
bool holds(const MeasuredPair& pair, const GenerateOptions& request);

/// What to plan for: the vector, or where no child was ever accepted a guess of the first one's
/// chance, so that there is a tree.
std::vector<double> vector_to_plan_for(const MeasuredAcceptance& setting);

/// "temperature 0.6, rejection", and what else is not as usual.
std::string words_of(const MeasuredAcceptance& setting);

}  // namespace coppice::study
