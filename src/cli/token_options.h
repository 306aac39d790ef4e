// What single tokens are to a new text: penalties, bias, ends.
#pragma once

#include "cli/options.h"

namespace coppice::cli {

/// --presence-penalty, --frequency-penalty, --logit-bias, --stop-tokens, --min-new-tokens.
po::options_description token_options();

/// Puts in what they say. Throws Error(usage).
void read_token_options(const po::variables_map& values, GenerateOptions& options);

}  // namespace coppice::cli
