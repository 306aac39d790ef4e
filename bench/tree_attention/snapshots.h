// Trees of texts at moments of their growth, as cells.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "cells.h"
#include "workload/speculation_record.h"
#include "workload/tree_template.h"

namespace coppice::bench {

/// `count` states of a tree, evenly over its iterations, in both of FlashForge's head shapes: a row
/// for each branch that is being written, and behind it what it has written so far. Their names are
/// `name` and the iteration. Fewer where iterations are.
std::vector<Cell> snapshot_cells(const workload::TreeTemplate& tree, const std::string& name,
                                 std::int32_t count);

/// `count` steps of the first record, evenly over it, in the same head shapes: its token tree
/// behind the prompt and what steps before have accepted. Their names are `name` and the step.
std::vector<Cell> snapshot_cells(const workload::SpeculationFile& file, const std::string& name,
                                 std::int32_t count);

/// Reads, from a file of either kind, the first template or record; its file's name without what
/// follows the last dot. Throws Error(failure) if it has none, and as readers of these files do.
std::vector<Cell> snapshot_cells(const std::filesystem::path& file, std::int32_t count);

}  // namespace coppice::bench
