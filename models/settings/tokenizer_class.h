// Which tokenizer class transformers 5 takes for a folder.
#pragma once

#include <span>
#include <string_view>
#include <utility>

#include "models/settings/tokenizer_settings.h"

namespace coppice {

/// By config.json's model_type and tokenizer_config.json's (or config.json's) tokenizer_class:
/// some types have a class of their own, some are known to name a wrong one.
TokenizerClass tokenizer_class_of(const SettingFile& config, const SettingFile& tokenizer_config);

/// Names and texts of the special tokens that a class has where no file names them.
std::span<const std::pair<const char*, const char*>> default_tokens(TokenizerClass kind);

}  // namespace coppice
