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

struct StudyRequest {
  std::filesystem::path prompts_file;  ///< by name, for people; its contents count
  std::vector<StudyPrompt> prompts;    ///< those that are studied
  std::vector<StudyPrompt> spare;      ///< those of the file that are not, and say nothing they say
  std::int32_t prompt_tokens = 0;      ///< most tokens of a turn of a prompt; 0: all
  std::vector<Cell> cells;
  std::int32_t rounds = 1;
  GenerateOptions shared;  ///< length, filters and penalty of all cells
  EngineOptions engine;
  std::int32_t jobs = 1;
  /// What sequoia's trees are planned for (acceptance.h); empty: it is measured.
  std::filesystem::path acceptance_file;
  std::filesystem::path trace;  ///< file for every node of every tree (trace.h); empty: none
  std::string command;          ///< as a shell takes it; for people
};

struct StudyHooks {
  std::function<void(const std::string& what, double fraction)> progress;
  std::function<bool()> stop;  ///< true ends the study early; what was done is kept
};

// From lists of options to the cells of a study.

struct GridLists {
  /// By name (cell.h). "none" is always studied, named or not.
  std::vector<std::string> policies;
  std::vector<std::int32_t> tree_sizes = {0};
  std::vector<double> temperatures = {0.0};
  std::vector<Acceptance> acceptances = {Acceptance::rejection};
  std::vector<std::uint64_t> seeds = {0};
  double draft_temperature = -1.0;  ///< of all cells
  /// Each goes to the policies that take it; `tree` is static_tree's alone.
  PolicyOptions options = {};
  std::filesystem::path grow_map = {};  ///< sequoia's tree
};

struct Grid {
  std::vector<Cell> cells;  ///< for each seed, temperature and acceptance: plain, then the rest
  std::vector<std::string> notes;  ///< a line for what was left out, and why
};

/// The cross product of the lists, less what is named twice, what the engine refuses and what
/// would be the same again: at temperature 0, where acceptance makes no difference, it is
/// rejection, and a policy whose tree is given by `widths`, `tree` or `grow_map` has one size.
/// Throws Error(usage) for an empty list, a policy that has no such name, a value out of range, an
/// option that belongs to none of the policies, and a policy that is refused in all of its
/// combinations.
Grid make_grid(const GridLists& lists, const GenerateOptions& shared);

}  // namespace coppice::study
