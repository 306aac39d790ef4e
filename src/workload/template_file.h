// Fields of template files, with messages that say where in the file something is wrong.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "base/json_file.h"

namespace coppice::workload {

/// A whole file of at most 256 MiB, of any JSON value.
JsonObject read_template_file(const std::filesystem::path& file);

/// A key of an object at `place`. Throws Error(failure) if there is none.
const nlohmann::json& field(const nlohmann::json& object, const char* key,
                            const std::string& place);
/// A whole number from `least` to `most`.
std::int64_t whole_number(const nlohmann::json& value, std::int64_t least, std::int64_t most,
                          const std::string& place);
/// A text, or the first one of a list of texts (turns); "" if there is none.
std::string prompt_of(const nlohmann::json& object, const std::string& place);

}  // namespace coppice::workload
