// tokenizer.model, by the sentencepiece library.
#pragma once

#include <filesystem>
#include <memory>

#include "models/settings/tokenizer_settings.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice {

/// Throws Error(failure) if the file is missing or corrupt.
std::unique_ptr<Tokenizer> load_sentencepiece_tokenizer(const std::filesystem::path& file,
                                                        const TokenizerSettings& settings);

}  // namespace coppice
