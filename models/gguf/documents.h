// The documents of a Hugging Face folder that a GGUF file's metadata say.
#pragma once

#include <optional>
#include <string_view>
#include <utility>

#include "models/gguf/gguf_file.h"

namespace coppice {

/// config.json, tokenizer_config.json or generation_config.json; std::nullopt of any other name.
/// Throws Error(failure) naming file and key for what is missing or wrong. An
/// architecture that coppice does not know has a config.json that says so.
std::optional<JsonObject> gguf_document(const GgufFile& file, std::string_view name);

/// Metadata that recommend how to sample, and what generation_config.json calls them.
inline constexpr std::pair<const char*, const char*> gguf_sampling_keys[] = {
    {"general.sampling.temp", "temperature"},
    {"general.sampling.top_k", "top_k"},
    {"general.sampling.top_p", "top_p"},
    {"general.sampling.min_p", "min_p"},
    {"general.sampling.penalty_repeat", "repetition_penalty"}};

/// The document config.json.
nlohmann::json gguf_config(const GgufFile& file);

}  // namespace coppice
