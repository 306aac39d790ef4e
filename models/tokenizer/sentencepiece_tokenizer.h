// tokenizer.model, by the sentencepiece library.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

#include "models/settings/tokenizer_settings.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice {

/// Throws Error(failure) if the file is missing or corrupt.
std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& file,
                                                        const TokenizerSettings& settings);
/// The same of a ModelProto's bytes that were made of a file of another kind: `name` begins
/// messages, `kind` is what file_kind() says.
std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(std::string bytes, const std::string& name,
                                                        const TokenizerSettings& settings,
                                                        std::string_view kind);

}  // namespace coppice
