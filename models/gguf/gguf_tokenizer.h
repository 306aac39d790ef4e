// The tokenizer of a GGUF file, made of its metadata tokenizer.ggml.*.
#pragma once

#include <memory>

#include "models/gguf/gguf_file.h"
#include "models/settings/tokenizer_settings.h"
#include "models/tokenizer/tokenizer.h"

namespace coppice {

/// Whether load_gguf_tokenizer() knows what the file names.
bool has_known_tokenizer(const GgufFile& file);

/// A "gpt2" becomes the tokenizer.json that its vocabulary was taken from, a "llama" the
/// tokenizer.model. Throws Error(failure) naming what coppice does not know, or the key that is
/// missing or wrong.
std::unique_ptr<Tokenizer> load_gguf_tokenizer(const GgufFile& file,
                                               const TokenizerSettings& settings);

/// Whether two files have the same tokens of the same kinds.
bool same_tokens(const GgufFile& one, const GgufFile& other);

}  // namespace coppice
