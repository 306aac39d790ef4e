#include "models/gguf/weight_mix.h"

namespace coppice {
namespace {

/// Which layers deserve more bits: the first eighth, the last one, and every third between.
bool has_more_bits(std::int32_t layer, std::int32_t layers) {
  return layer < layers / 8 || layer >= 7 * layers / 8 || (layer - layers / 8) % 3 == 2;
}

/// The table that makes logits.
bool is_output(const ModelConfig& config, std::string_view name) {
  return name == (config.tie_word_embeddings ? "model.embed_tokens.weight" : "lm_head.weight");
}

}  // namespace

const char* name_of(WeightMix mix) {
  switch (mix) {
    case WeightMix::q8_0:
      return "q8_0";
    case WeightMix::q6_k:
      return "q6_k";
    case WeightMix::q4_k_m:
      return "q4_k_m";
    case WeightMix::q4_0:
      return "q4_0";
  }
  return "";
}

std::uint32_t file_type_of(WeightMix mix) {
  switch (mix) {
    case WeightMix::q8_0:
      return 7;
    case WeightMix::q6_k:
      return 18;
    case WeightMix::q4_k_m:
      return 15;
    case WeightMix::q4_0:
      return 2;
  }
  return 0;
}

WeightFormat format_in(WeightMix mix, const ModelConfig& config, std::string_view name) {
  if (mix == WeightMix::q8_0) return WeightFormat::q8_0;
  if (mix == WeightMix::q6_k || is_output(config, name)) return WeightFormat::q6_k;
  if (mix == WeightMix::q4_0) return WeightFormat::q4_0;
  const bool widened =
      name.ends_with("self_attn.v_proj.weight") || name.ends_with("mlp.down_proj.weight");
  return widened && has_more_bits(layer_of(name), config.layers) ? WeightFormat::q6_k
                                                                 : WeightFormat::q4_k;
}

}  // namespace coppice
