// What a folder recommends for generation, as metadata of a GGUF file.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "models/gguf/gguf_writer.h"

namespace coppice {

struct SamplingMetadata {
  GgufMetadata values;            ///< general.sampling.*
  std::vector<std::string> lost;  ///< what has no key there
};

/// Reads a Hugging Face folder. Throws Error(failure) as GenerationSettings does.
SamplingMetadata sampling_metadata(const std::filesystem::path& dir);

}  // namespace coppice
