// `coppice generate --batch`: many texts in, JSON lines out.
#pragma once

#include "cli/options.h"

namespace coppice::cli {

/// --batch, --parallel, --output, --progress.
po::options_description batch_options();

/// EngineOptions::max_sequences: --parallel, but no more than there are texts to write. Throws
/// Error(usage).
std::int32_t parallel_texts(const po::variables_map& values, std::int64_t texts);

/// Runs the batch and returns the exit code. Throws Error, ClosedPipe.
int generate_batch(const po::variables_map& given);

}  // namespace coppice::cli
