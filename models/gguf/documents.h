// The documents of a Hugging Face folder that a GGUF file's metadata say.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "models/gguf/gguf_file.h"

namespace coppice {

/// The text of config.json, tokenizer_config.json or generation_config.json; std::nullopt of any
/// other name. Throws Error(failure) naming file and key for what is missing or wrong. An
/// architecture that coppice does not know has a config.json that says so.
std::optional<std::string> gguf_document(const GgufFile& file, std::string_view name);

/// The document config.json.
nlohmann::json gguf_config(const GgufFile& file);

}  // namespace coppice
