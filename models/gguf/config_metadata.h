// The metadata that say in a GGUF file what a model's config.json says: documents.h turned round.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "models/config.h"
#include "models/gguf/gguf_writer.h"

namespace coppice {

struct ConfigMetadata {
  std::string architecture;  ///< general.architecture
  GgufMetadata values;       ///< keys that begin with it
  /// Tensors of F32 that scale rotary frequencies.
  std::vector<std::pair<std::string, std::vector<float>>> tensors;
};

/// Writes a config that coppice can run, its head settled. Throws Error(failure), which `where`
/// begins, for what readers of GGUF files would not learn: coppice, or llama.cpp.
ConfigMetadata config_metadata(const ModelConfig& config, const std::string& where);

}  // namespace coppice
