// Mistral 7B, Nemo, Small: Llama with a window in every layer, or in none.
#include "models/families/family.h"

namespace coppice {
namespace {

void read_mistral(const Fields& fields, ModelConfig& config) {
  const auto layers = static_cast<std::size_t>(config.layers);
  config.layer_specs.assign(layers, plain_layer(fields, config));
  add_rope(fields, config);
  set_windows(fields, fields.has("sliding_window"), config);
}

}  // namespace

// A file without sliding_window has the first Mistral's window; one without a window says null.
const Family mistral{"MistralForCausalLM", "mistral", R"({
    "sliding_window": 4096, "max_position_embeddings": 131072, "num_key_value_heads": 8,
    "bos_token_id": 1, "eos_token_id": 2})",
                     read_mistral};

}  // namespace coppice
