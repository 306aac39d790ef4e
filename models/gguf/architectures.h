// What general.architecture of a GGUF file names, and the families of config.json.
#pragma once

#include <string_view>

namespace coppice {

struct GgufArchitecture {
  std::string_view name;    ///< general.architecture
  std::string_view family;  ///< in config.json's list of architectures
  const char* model_type;
};

/// nullptr if coppice does not know the name.
const GgufArchitecture* gguf_architecture(std::string_view name);
/// What a model of a family is written as; nullptr: no GGUF file holds one that coppice reads.
const GgufArchitecture* gguf_architecture_of(std::string_view family);

}  // namespace coppice
