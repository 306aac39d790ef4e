// Options of placement that a command was given in vain.
#pragma once

#include "cli/options.h"
#include "coppice.h"

namespace coppice::cli {

/// Says which of the given options of placement have no effect on the models and the device of
/// `options`, and undoes those of a draft that is not there.
/// Throws Error(usage) as check_memory_fraction() does.
void leave_out_idle_placement(const po::variables_map& values, EngineOptions& options);

}  // namespace coppice::cli
