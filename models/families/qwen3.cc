// Qwen 3: Qwen 2 with norms of query and key heads in place of biases.
#include "models/families/family.h"

namespace coppice {
namespace {

void read_qwen3(const Fields& fields, ModelConfig& config) {
  LayerSpec layer = plain_layer(fields, config);
  layer.head_norms = true;
  config.layer_specs.assign(static_cast<std::size_t>(config.layers), layer);
  add_rope(fields, config);
  set_windows_of_qwen(fields, config);
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
}

}  // namespace

const Family qwen3{"Qwen3ForCausalLM", "qwen3", R"({
    "sliding_window": 4096, "max_window_layers": 28, "max_position_embeddings": 32768,
    "num_key_value_heads": 32, "head_dim": 128})",
                   read_qwen3};

}  // namespace coppice
