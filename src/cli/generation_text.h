// A generation as JSON, by the names that other programs read, and as a short table.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "coppice.h"

namespace coppice::cli {

nlohmann::ordered_json to_json(const Generation& generation, bool with_logprobs);
/// One line; what is no UTF-8 is replaced.
std::string json_line(const nlohmann::ordered_json& json);
std::string to_table(const Generation& generation);

}  // namespace coppice::cli
