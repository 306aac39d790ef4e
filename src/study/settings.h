// All that defines a study, as study.json holds it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <vector>

#include "coppice.h"
#include "study/cell.h"
#include "study/prompts.h"

namespace coppice::study {

struct StudyRequest {
  std::filesystem::path prompts_file;  ///< by name, for people; its contents count
  std::vector<StudyPrompt> prompts;    ///< those that are studied
  std::int32_t prompt_tokens = 0;      ///< most tokens of a prompt; 0: all
  std::vector<Cell> cells;
  SharedOptions shared;
  std::int32_t oracle_positions = 0;
  std::vector<std::int32_t> oracle_sizes;
  EngineOptions engine;
  std::int32_t jobs = 1;
  std::filesystem::path trace;  ///< file for every node of every tree (trace.h); empty: none
};

/// `count` of the prompts, evenly spread over the file, which is often sorted by kind; all of them
/// where there are no more, or `count` is 0.
std::vector<StudyPrompt> spread(std::vector<StudyPrompt> prompts, std::int32_t count);

/// Models by path and fingerprint, prompts by hash, every option that changes a figure; of a
/// registered policy its name alone, for what it does cannot be told. Reads the model folders;
/// throws Error(failure) where it cannot.
nlohmann::ordered_json settings_of(const StudyRequest& request);

}  // namespace coppice::study
