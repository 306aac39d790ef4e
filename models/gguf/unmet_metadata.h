// Metadata of a GGUF file that ask for other mathematics than coppice has of its architecture.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "models/config.h"

namespace coppice {

/// One sentence for each key whose value would change results. `document` is the file's config.json
/// (documents.h), which hands on the keys that nobody looked at; `config` is what it says.
std::vector<std::string> unmet_metadata(const nlohmann::json& document, const ModelConfig& config);

}  // namespace coppice
