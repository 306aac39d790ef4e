// tokenizer.json of Hugging Face's tokenizers library.
#pragma once

#include <filesystem>
#include <memory>

#include "models/settings/tokenizer_settings.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice {

/// Interprets the file. Throws Error(failure) if it is missing, damaged, or asks for something that
/// coppice does not know, which is named with its place in the file.
std::unique_ptr<Tokenizer> load_json_tokenizer(const std::filesystem::path& file,
                                               const TokenizerSettings& settings);

}  // namespace coppice
