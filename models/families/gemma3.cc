// Gemma 3: norms before and after attention and FFN and of query and key heads, five layers with a
// window and a rotary embedding of their own before each one without.
#include "base/error.h"
#include "models/families/family.h"

namespace coppice {
namespace {

constexpr double windowed_theta = 10000.0, full_theta = 1000000.0;

void add_ropes(const Fields& fields, ModelConfig& config) {
  static const nlohmann::json none = nlohmann::json::object();
  const Fields plain(none, fields.where());
  // transformers 5 has the settings of both kinds of layers; earlier ones scale the full ones
  // alone.
  const bool both = fields.has("rope_parameters");
  const Fields settings = both ? fields.inside("rope_parameters") : plain;
  const auto add = [&](const char* kind, double theta, const Fields& otherwise) {
    add_rope(settings.has(kind) ? settings.inside(kind) : otherwise, fields, config, theta);
  };
  add("full_attention", fields.positive("rope_theta", full_theta),
      fields.has("rope_scaling") ? fields.inside("rope_scaling") : plain);
  add("sliding_attention", fields.positive("rope_local_base_freq", windowed_theta), plain);
}

void read_gemma3(const Fields& fields, ModelConfig& config) {
  LayerSpec layer = gemma_layer(fields, config);
  layer.head_norms = true;
  if (layer.attention.soft_cap != 0.0f) {
    config.unsupported.push_back("attn_logit_softcapping in a Gemma 3, which has no soft caps");
  }
  config.layer_specs.assign(static_cast<std::size_t>(config.layers), layer);
  add_ropes(fields, config);
  const auto pattern = fields.integer("sliding_window_pattern", 1, most_layers, 6);
  const auto windowed = windowed_layers(
      fields, config, [&](std::int32_t index) { return (index + 1) % pattern != 0; });
  for (std::size_t i = 0; i < windowed.size(); ++i)
    config.layer_specs[i].rope = windowed[i] ? 1 : 0;
  set_windows(fields, windowed, config);
  if (fields.boolean("use_bidirectional_attention", false)) {
    config.unsupported.push_back("bidirectional attention (use_bidirectional_attention)");
  }
}

constexpr std::string_view gemma3_defaults = R"({
    "vocab_size": 262208, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 131072,
    "tie_word_embeddings": true, "bos_token_id": 2, "eos_token_id": 1,
    "query_pre_attn_scalar": 256, "sliding_window": 4096,
    "final_logit_softcapping": null, "attn_logit_softcapping": null})";

}  // namespace

const Family gemma3_text{"Gemma3ForCausalLM", "gemma3_text", gemma3_defaults, read_gemma3};
/// The text model of a folder that sees images too.
const Family gemma3{"Gemma3ForConditionalGeneration", "gemma3", gemma3_defaults, read_gemma3,
                    "text_config"};

}  // namespace coppice
