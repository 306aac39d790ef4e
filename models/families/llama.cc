// Llama 1 to 3.3, and what has its shape: TinyLlama, SmolLM2, DeepSeek's Llama distills.
#include "models/families/family.h"

namespace coppice {
namespace {

void read_llama(const Fields& fields, ModelConfig& config) {
  const auto layers = static_cast<std::size_t>(config.layers);
  config.layer_specs.assign(layers, plain_layer(fields, config));
  add_rope(fields, config);
  set_windows(fields, false, config);
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.mlp_bias = fields.boolean("mlp_bias", false);
}

}  // namespace

const Family llama{"LlamaForCausalLM", "llama", R"({
    "max_position_embeddings": 2048, "bos_token_id": 1, "eos_token_id": 2})",
                   read_llama};

}  // namespace coppice
