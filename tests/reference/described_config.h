// What two configs are compared by.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>

#include "models/config.h"
#include "models/rope_table.h"

namespace coppice::testing {

/// All that a config says of a model, but how its files store norms.
inline nlohmann::json described(const ModelConfig& config) {
  nlohmann::json json = {config.architecture,
                         config.model_type,
                         config.vocab_size,
                         config.hidden_size,
                         config.intermediate_size,
                         config.layers,
                         config.heads,
                         config.kv_heads,
                         config.head_dim,
                         config.context_length,
                         config.rms_norm_eps,
                         config.scaled_embeddings,
                         config.final_soft_cap,
                         config.tie_word_embeddings,
                         config.qkv_bias,
                         config.output_bias,
                         config.mlp_bias,
                         config.fused_projections,
                         config.bos_token,
                         config.eos_tokens,
                         config.unsupported};
  for (const LayerSpec& layer : config.layer_specs) {
    json.push_back({layer.attention.scale, layer.attention.soft_cap, layer.attention.window,
                    layer.rope, layer.head_norms, layer.output_norms,
                    static_cast<int>(layer.activation)});
  }
  for (const RopeSpec& rope : config.ropes) {
    json.push_back({rope.theta, rope.rotated, rope.original_context,
                    static_cast<float>(rope.attention_factor)});
    for (const std::int32_t positions : {1, 1 << 20}) {
      json.push_back(rope_frequencies(rope, positions));
    }
  }
  return json;
}

}  // namespace coppice::testing
