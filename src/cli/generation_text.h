// A generation as JSON, by the names that other programs read, and as a short table.
#pragma once

#include <string>

#include "coppice.h"

namespace coppice::cli {

std::string to_json(const Generation& generation, bool with_logprobs);
std::string to_table(const Generation& generation);

}  // namespace coppice::cli
