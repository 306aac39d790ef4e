// SmolLM3: Llama where every fourth layer does not tell positions.
#include "base/error.h"
#include "models/families/family.h"

namespace coppice {
namespace {

void read_smollm3(const Fields& fields, ModelConfig& config) {
  config.layer_specs.assign(static_cast<std::size_t>(config.layers), plain_layer(fields, config));
  add_rope(fields, config, 2000000.0);
  const auto interval = fields.integer("no_rope_layer_interval", 1, most_layers, 4);
  const nlohmann::json* rotated = fields.find("no_rope_layers");
  if (rotated != nullptr && (!rotated->is_array() || rotated->size() < config.layer_specs.size())) {
    fields.refuse("no_rope_layers", cat("a list of num_hidden_layers, ", config.layers, ", flags"));
  }
  for (std::size_t i = 0; i < config.layer_specs.size(); ++i) {
    // The flags say which layers are rotated.
    const bool rotates = rotated != nullptr ? (*rotated)[i] != 0
                                            : (static_cast<std::int64_t>(i) + 1) % interval != 0;
    if (!rotates) config.layer_specs[i].rope = LayerSpec::no_rope;
  }
  const bool windows = fields.boolean("use_sliding_window", false) && fields.has("sliding_window");
  auto windowed = windowed_layers(fields, config, [&](std::int32_t layer) {
    return config.layer_specs[static_cast<std::size_t>(layer)].rope == LayerSpec::no_rope;
  });
  if (windows) set_windows(fields, windowed, config);
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  config.mlp_bias = fields.boolean("mlp_bias", false);
}

}  // namespace

const Family smollm3{"SmolLM3ForCausalLM", "smollm3", R"({
    "tie_word_embeddings": true, "max_position_embeddings": 32768, "num_key_value_heads": 4,
    "bos_token_id": 128000, "eos_token_id": 128001})",
                     read_smollm3};

}  // namespace coppice
