// --acceptance-vector: what sequoia plans its trees for.
#pragma once

#include "cli/options.h"

namespace coppice::cli {

/// Puts in what --acceptance-vector says: a file that coppice plan measured on the pair of `engine`
/// for the settings of `options`, or a list of numbers. Says on standard error if a grow map was
/// planned for another pair or other settings. Throws Error(usage) if the policy plans no
/// tree, for a file of another pair or without these settings, and for numbers that are none;
/// Error(failure) for a file that cannot be read.
void read_acceptance_vector(const po::variables_map& values, const EngineOptions& engine,
                            GenerateOptions& options);

/// Says on standard error whose acceptance sequoia's tree is planned for, if nothing was given: for
/// commands whose output does not (Used::planned_for).
void tell_usual_acceptance(const po::variables_map& values, const GenerateOptions& options);

}  // namespace coppice::cli
