#include "models/gguf/tensor_names.h"

#include <algorithm>
#include <utility>

#include "base/error.h"

namespace coppice {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

std::string_view found_in(const auto& pairs, std::string_view name) {
  for (const auto& [own, stored] : pairs) {
    if (own == name) return stored;
  }
  return {};
}

/// Names of a layer's parts that all architectures have.
constexpr Pair layer_parts[] = {{"input_layernorm", "attn_norm"},
                                {"self_attn.q_proj", "attn_q"},
                                {"self_attn.k_proj", "attn_k"},
                                {"self_attn.v_proj", "attn_v"},
                                {"self_attn.qkv_proj", "attn_qkv"},
                                {"self_attn.o_proj", "attn_output"},
                                {"self_attn.q_norm", "attn_q_norm"},
                                {"self_attn.k_norm", "attn_k_norm"},
                                {"pre_feedforward_layernorm", "ffn_norm"},
                                {"post_feedforward_layernorm", "post_ffw_norm"},
                                {"mlp.gate_proj", "ffn_gate"},
                                {"mlp.up_proj", "ffn_up"},
                                {"mlp.gate_up_proj", "ffn_up"},
                                {"mlp.down_proj", "ffn_down"}};
constexpr Pair model_parts[] = {
    {"model.embed_tokens", "token_embd"}, {"model.norm", "output_norm"}, {"lm_head", "output"}};

}  // namespace

std::string gguf_tensor_name(const ModelConfig& config, std::string_view name) {
  constexpr std::string_view layers = "model.layers.";
  const std::string_view ending = name.substr(name.rfind('.'));  // .weight or .bias
  name.remove_suffix(ending.size());
  if (!name.starts_with(layers)) return cat(found_in(model_parts, name), ending);
  name.remove_prefix(layers.size());
  const std::string_view layer = name.substr(0, name.find('.'));
  name.remove_prefix(layer.size() + 1);
  // Where four norms are, the second one follows attention; else it stands before the FFN.
  const bool four_norms = !config.layer_specs.empty() && config.layer_specs.front().output_norms;
  const std::string_view part = name == "post_attention_layernorm"
                                    ? (four_norms ? "post_attention_norm" : "ffn_norm")
                                    : found_in(layer_parts, name);
  return cat("blk.", layer, ".", part, ending);
}

bool has_permuted_rows(std::string_view architecture, std::string_view name) {
  const bool is_rotated = name.find(".q_proj.") != name.npos || name.find(".k_proj.") != name.npos;
  return is_rotated && (architecture == "llama" || architecture == "smollm3");
}

std::int64_t stored_row(std::int64_t row, std::int64_t head_dim) {
  const std::int64_t head = row / head_dim, within = row % head_dim, half = head_dim / 2;
  return head * head_dim + 2 * (within % half) + within / half;
}

std::int64_t row_stored_as(std::int64_t stored, std::int64_t head_dim) {
  const std::int64_t head = stored / head_dim, within = stored % head_dim;
  return head * head_dim + within % 2 * (head_dim / 2) + within / 2;
}

}  // namespace coppice
