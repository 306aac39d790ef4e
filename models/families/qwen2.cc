// Qwen 2 and 2.5, DeepSeek's Qwen distills: Llama with biases of queries, keys and values.
#include "models/families/family.h"

namespace coppice {
namespace {

void read_qwen2(const Fields& fields, ModelConfig& config) {
  const auto layers = static_cast<std::size_t>(config.layers);
  config.layer_specs.assign(layers, plain_layer(fields, config));
  add_rope(fields, config);
  set_windows_of_qwen(fields, config);
  config.qkv_bias = true;
}

}  // namespace

const Family qwen2{"Qwen2ForCausalLM", "qwen2", R"({
    "sliding_window": 4096, "max_window_layers": 28, "max_position_embeddings": 32768,
    "num_key_value_heads": 32})",
                   read_qwen2};

}  // namespace coppice
