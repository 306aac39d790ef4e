// Trees of texts at moments of their growth, as cells.
#pragma once

#include <string>
#include <vector>

#include "cells.h"
#include "workload/tree_template.h"

namespace coppice::bench {

/// `count` states of a tree, evenly over its iterations, in both of FlashForge's head shapes: a row
/// for each branch that is being written, and behind it what it has written so far. Their names are
/// `name` and the iteration. Fewer where iterations are.
std::vector<Cell> snapshot_cells(const workload::TreeTemplate& tree, const std::string& name,
                                 std::int32_t count);

}  // namespace coppice::bench
