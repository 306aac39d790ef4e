// The metadata tokenizer.* that say in a GGUF file what a folder's tokenizer and its settings say.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/config.h"
#include "models/gguf/gguf_writer.h"

namespace coppice {

struct TokenizerMetadata {
  GgufMetadata values;
  std::vector<std::string> lost;  ///< what readers will not learn, and can do without
};

/// Converts a Hugging Face folder's tokenizer: a tokenizer.json that is a BPE of bytes becomes a
/// "gpt2", else a tokenizer.model that is a BPE a "llama". Throws Error(failure) for any other
/// tokenizer, for one without a file, and for what neither can say.
TokenizerMetadata tokenizer_metadata(const std::filesystem::path& dir, const ModelConfig& config);

}  // namespace coppice
