// From lists of options to the cells of a study.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "study/grid/cell.h"

namespace coppice::study {

struct GridLists {
  /// By name (cell.h). "none" is always studied, named or not.
  std::vector<std::string> policies;
  std::vector<std::int32_t> tree_sizes = {0};
  std::vector<double> temperatures = {0.0};
  std::vector<Acceptance> acceptances = {Acceptance::rejection};
  std::vector<std::uint64_t> seeds = {0};
  double draft_temperature = -1.0;  ///< of all cells
  // Each goes to the policies that know it.
  std::int32_t tree_depth = 0;           ///< sequoia, expand_rerank
  std::int32_t beam_width = 0;           ///< expand_rerank
  double threshold = 0.0;                ///< dyspec_threshold, plain or not
  std::vector<std::int32_t> widths;      ///< specinfer
  std::filesystem::path tree, grow_map;  ///< static_tree; sequoia
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
Grid make_grid(const GridLists& lists, const SharedOptions& shared);

}  // namespace coppice::study
