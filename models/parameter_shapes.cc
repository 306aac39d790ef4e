#include <charconv>

#include "base/error.h"
#include "models/config.h"

namespace coppice {

std::int64_t ParameterShape::elements() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : shape) product *= extent;
  return product;
}

std::vector<ParameterShape> parameter_shapes(const ModelConfig& config) {
  const std::int64_t hidden = config.hidden_size, ffn = config.intermediate_size;
  const std::int64_t q = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t kv = std::int64_t{config.kv_heads} * config.head_dim;
  std::vector<ParameterShape> all;
  const auto linear = [&](const std::string& name, std::int64_t out, std::int64_t in, bool bias) {
    all.push_back({name + ".weight", {out, in}});
    if (bias) all.push_back({name + ".bias", {out}});
  };
  const auto norm = [&](const std::string& name, std::int64_t width) {
    all.push_back({name + ".weight", {width}});
  };
  linear("model.embed_tokens", config.vocab_size, hidden, false);
  for (std::size_t i = 0; i < config.layer_specs.size(); ++i) {
    const LayerSpec& layer = config.layer_specs[i];
    const std::string at = cat("model.layers.", i, ".");
    norm(at + "input_layernorm", hidden);
    if (config.fused_projections) {
      linear(at + "self_attn.qkv_proj", q + 2 * kv, hidden, config.qkv_bias);
    } else {
      linear(at + "self_attn.q_proj", q, hidden, config.qkv_bias);
      linear(at + "self_attn.k_proj", kv, hidden, config.qkv_bias);
      linear(at + "self_attn.v_proj", kv, hidden, config.qkv_bias);
    }
    if (layer.head_norms) {
      norm(at + "self_attn.q_norm", config.head_dim);
      norm(at + "self_attn.k_norm", config.head_dim);
    }
    linear(at + "self_attn.o_proj", hidden, q, config.output_bias);
    norm(at + "post_attention_layernorm", hidden);
    if (layer.output_norms) norm(at + "pre_feedforward_layernorm", hidden);
    if (config.fused_projections) {
      linear(at + "mlp.gate_up_proj", 2 * ffn, hidden, config.mlp_bias);
    } else {
      linear(at + "mlp.gate_proj", ffn, hidden, config.mlp_bias);
      linear(at + "mlp.up_proj", ffn, hidden, config.mlp_bias);
    }
    linear(at + "mlp.down_proj", hidden, ffn, config.mlp_bias);
    if (layer.output_norms) norm(at + "post_feedforward_layernorm", hidden);
  }
  norm("model.norm", hidden);
  if (!config.tie_word_embeddings) linear("lm_head", config.vocab_size, hidden, false);
  return all;
}

std::int64_t parameter_count(const ModelConfig& config) {
  std::int64_t count = 0;
  for (const ParameterShape& parameter : parameter_shapes(config)) count += parameter.elements();
  return count;
}

std::int32_t layer_of(std::string_view name) {
  constexpr std::string_view begin = "model.layers.";
  std::int32_t layer = -1;
  if (!name.starts_with(begin)) return layer;
  name.remove_prefix(begin.size());
  std::from_chars(name.data(), name.data() + name.size(), layer);
  return layer;
}

}  // namespace coppice
