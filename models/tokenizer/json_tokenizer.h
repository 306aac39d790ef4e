// tokenizer.json of Hugging Face's tokenizers library.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "base/json_file.h"
#include "models/settings/tokenizer_settings.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice {

/// Interprets the file. Throws Error(failure) if it is missing, damaged, or asks for something that
/// coppice does not know, which is named with its place in the file.
std::unique_ptr<Tokenizer> load_json_tokenizer(const std::filesystem::path& file,
                                               const TokenizerSettings& settings);
/// The same of an object like the file's that was made of a file of another kind: `name` begins
/// messages, `kind` is what file_kind() says.
std::unique_ptr<Tokenizer> load_json_tokenizer(JsonObject json, const std::string& name,
                                               const TokenizerSettings& settings,
                                               std::string_view kind);

}  // namespace coppice
