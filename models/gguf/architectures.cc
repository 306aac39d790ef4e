#include "models/gguf/architectures.h"

#include <algorithm>
#include <iterator>

namespace coppice {
namespace {

constexpr GgufArchitecture known_architectures[] = {
    {"llama", "LlamaForCausalLM", "llama"},         {"qwen2", "Qwen2ForCausalLM", "qwen2"},
    {"qwen3", "Qwen3ForCausalLM", "qwen3"},         {"gemma2", "Gemma2ForCausalLM", "gemma2"},
    {"gemma3", "Gemma3ForCausalLM", "gemma3_text"}, {"phi3", "Phi3ForCausalLM", "phi3"},
    {"smollm3", "SmolLM3ForCausalLM", "smollm3"},
};

const GgufArchitecture* found(auto matches) {
  const auto* const one =
      std::find_if(std::begin(known_architectures), std::end(known_architectures), matches);
  return one == std::end(known_architectures) ? nullptr : one;
}

}  // namespace

const GgufArchitecture* gguf_architecture(std::string_view name) {
  return found([&](const GgufArchitecture& one) { return one.name == name; });
}

const GgufArchitecture* gguf_architecture_of(std::string_view family) {
  if (family == "MistralForCausalLM") family = "LlamaForCausalLM";
  if (family == "Gemma3ForConditionalGeneration") family = "Gemma3ForCausalLM";  // its text model
  return found([&](const GgufArchitecture& one) { return one.family == family; });
}

}  // namespace coppice
