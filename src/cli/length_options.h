// How long a text of `generate` gets, where it ends, and which of its samples are written.
#pragma once

#include <cstdint>

#include "cli/options.h"

namespace coppice::cli {

po::options_description length_options();

/// Puts in what length_options() say, but for --n. Throws Error(usage).
void read_length_options(const po::variables_map& values, GenerateOptions& options);

/// --n. Throws Error(usage).
std::int32_t sample_count(const po::variables_map& values);

}  // namespace coppice::cli
