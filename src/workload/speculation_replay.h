// Recorded speculation on an engine: passes over the token tree, accepted lengths forced.
#pragma once

#include "drafting/static_tree.h"
#include "workload/replay.h"

namespace coppice::workload {

/// Judges the tree of random tokens once for every step, and keeps as many tokens as the step says,
/// whatever the verdict. There is no draft. Adds to `report`; `report.passes` counts steps.
/// `settings` are used for seed, progress and stop. Throws Error(usage) for a tree larger than the
/// engine's, or a text that does not fit its context.
void replay(Engine& engine, const TreeShape& tree, const std::vector<TokenId>& prompt,
            const std::vector<std::int32_t>& accepted, const ReplaySettings& settings,
            ReplayReport& report);

}  // namespace coppice::workload
