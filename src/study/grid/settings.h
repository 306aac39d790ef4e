// What a study is asked for.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "coppice.h"
#include "study/grid/cell.h"
#include "study/prompts/prompts.h"

namespace coppice::study {

/// A target and its draft.
struct ModelPair {
  std::string name;  ///< Cell::pair; empty if a study has one pair that is not named
  std::filesystem::path target;
  std::filesystem::path draft;  ///< empty: plain decoding only
};

struct StudyRequest {
  std::filesystem::path prompts_file;  ///< by name, for people; its contents count
  std::vector<StudyPrompt> prompts;    ///< those that are studied
  std::vector<StudyPrompt> spare;      ///< those of the file that are not, and say nothing they say
  std::int32_t prompt_tokens = 0;      ///< most tokens of a turn of a prompt; 0: all
  std::vector<Cell> cells;             ///< of all pairs
  std::int32_t rounds = 1;
  SharedOptions shared;
  std::int32_t oracle_positions = 0;
  std::vector<std::int32_t> oracle_sizes;
  std::vector<ModelPair> pairs;  ///< empty: that of `engine`, without a name
  EngineOptions engine;          ///< of all pairs, but for the models
  std::int32_t jobs = 1;
  /// What sequoia's trees are planned for (acceptance_file.h); empty: it is measured.
  std::filesystem::path acceptance_file;
  std::filesystem::path trace;  ///< file for every node of every tree (trace.h); empty: none
  std::string command;          ///< as a shell takes it; for people

  std::vector<ModelPair> all_pairs() const {
    return pairs.empty() ? std::vector<ModelPair>{{"", engine.target, engine.draft}} : pairs;
  }
};

struct StudyHooks {
  std::function<void(const std::string& what, double fraction)> progress;
  std::function<bool()> stop;  ///< true ends the study early; what was done is kept
};

}  // namespace coppice::study
