// `coppice workload toolbench|loogle`: many prompts that share prefixes.
#pragma once

#include <string>

#include "cli/options.h"

namespace coppice::cli {

/// Their options, beside those that all kinds take.
po::options_description shared_prompt_options();

/// Makes the prompts, writes them as a batch if that is asked for, and has an engine answer them.
/// Returns the exit code.
int answer_shared_prompts(const po::variables_map& values, const std::string& kind);

}  // namespace coppice::cli
