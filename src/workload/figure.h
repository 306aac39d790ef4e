// A tree in motion as a figure.
#pragma once

#include <string>
#include <vector>

#include "workload/speculation_record.h"
#include "workload/tree_template.h"

namespace coppice::workload {

/// Nodes in depth-first order over iterations: by colour how many branches read a node, grey once
/// nothing reads it any more. SVG, a file of its own. Throws Error(usage) for a tree of more nodes
/// than can be told apart.
std::string figure_of(const TreeTemplate& tree);

/// How many tokens each of the first recorded steps accepted, before the most that the tree could
/// have given.
std::string figure_of(const TreeShape& tree, const std::vector<std::int32_t>& accepted);

}  // namespace coppice::workload
