#include "models/families/family.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "base/error.h"
#include "base/json_file.h"

namespace coppice {

std::span<const Family* const> families() {
  static constexpr const Family* all[] = {&llama,       &mistral, &qwen2, &qwen3,  &gemma2,
                                          &gemma3_text, &gemma3,  &phi3,  &smollm3};
  return all;
}

LayerSpec plain_layer(const Fields& fields, ModelConfig& config, const char* activation) {
  LayerSpec layer;
  layer.attention.scale = static_cast<float>(1.0 / std::sqrt(config.head_dim));
  const std::string name = fields.text(activation, "silu");
  if (name == "gelu_pytorch_tanh") {
    layer.activation = Activation::gelu_tanh;
  } else if (name != "silu" && name != "swish") {
    config.unsupported.push_back(
        cat("activation ", quote(name), " (coppice knows silu and gelu_pytorch_tanh)"));
  }
  return layer;
}

std::vector<bool> windowed_layers(const Fields& fields, ModelConfig& config,
                                  const std::function<bool(std::int32_t layer)>& usual) {
  std::vector<bool> windowed(static_cast<std::size_t>(config.layers));
  const nlohmann::json* types = fields.find("layer_types");
  if (types == nullptr) {
    for (std::int32_t i = 0; i < config.layers; ++i) {
      windowed[static_cast<std::size_t>(i)] = usual(i);
    }
    return windowed;
  }
  if (!types->is_array() || types->size() != windowed.size()) {
    fields.refuse("layer_types", cat("a list of num_hidden_layers, ", config.layers, ", names"));
  }
  for (std::size_t i = 0; i < windowed.size(); ++i) {
    const nlohmann::json& type = (*types)[i];
    windowed[i] = type == "sliding_attention";
    if (windowed[i] || type == "full_attention") continue;
    config.unsupported.push_back(cat("layers of type ", shown(type), " (layer_types)"));
    break;
  }
  return windowed;
}

void set_windows(const Fields& fields, const std::vector<bool>& windowed, ModelConfig& config) {
  if (std::find(windowed.begin(), windowed.end(), true) == windowed.end()) return;
  const std::int64_t window = fields.integer("sliding_window", 1, most_context);
  if (window >= config.context_length) return;
  for (std::size_t i = 0; i < windowed.size(); ++i) {
    if (windowed[i]) config.layer_specs[i].attention.window = static_cast<std::int32_t>(window);
  }
}

void set_windows(const Fields& fields, bool windowed, ModelConfig& config) {
  const auto layers = windowed_layers(fields, config, [&](std::int32_t) { return windowed; });
  if (std::find(layers.begin(), layers.end(), !windowed) != layers.end()) {
    config.unsupported.push_back(cat("windows in some layers (layer_types) of a ",
                                     config.architecture, ", which has them in ",
                                     windowed ? "all" : "none"));
    return;
  }
  set_windows(fields, layers, config);
}

void set_windows_of_qwen(const Fields& fields, ModelConfig& config) {
  // Null says no windows, as in transformers.
  const bool windows = fields.boolean("use_sliding_window", false) && fields.has("sliding_window");
  if (!windows) return set_windows(fields, false, config);
  const std::int64_t first = fields.integer("max_window_layers", 0, most_layers);
  set_windows(fields,
              windowed_layers(fields, config, [&](std::int32_t layer) { return layer >= first; }),
              config);
}

LayerSpec gemma_layer(const Fields& fields, ModelConfig& config) {
  LayerSpec layer = plain_layer(fields, config, "hidden_activation");
  layer.attention.scale =
      static_cast<float>(1.0 / std::sqrt(fields.positive("query_pre_attn_scalar")));
  const auto cap = [&](const char* name) {
    return fields.has(name) ? static_cast<float>(fields.positive(name)) : 0.0f;
  };
  layer.attention.soft_cap = cap("attn_logit_softcapping");
  config.final_soft_cap = cap("final_logit_softcapping");
  layer.output_norms = true;
  config.one_based_norms = true;
  config.scaled_embeddings = true;
  config.qkv_bias = config.output_bias = fields.boolean("attention_bias", false);
  return layer;
}

}  // namespace coppice
