// A GGUF file's tensors under Hugging Face's names.
#pragma once

#include <filesystem>
#include <memory>

#include "models/config.h"
#include "models/weight_source.h"

namespace coppice {

/// Rows of query and key projections are read in Hugging Face's order. Throws as open_gguf()
/// does.
std::unique_ptr<WeightSource> open_gguf_weights(const std::filesystem::path& path,
                                                const ModelConfig& config);

}  // namespace coppice
