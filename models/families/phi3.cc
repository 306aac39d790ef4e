// Phi 3, 3.5 and 4: Llama with stacked projections, LongRoPE, and heads rotated in part (4 mini).
#include "models/families/family.h"

namespace coppice {
namespace {

void read_phi3(const Fields& fields, ModelConfig& config) {
  const auto layers = static_cast<std::size_t>(config.layers);
  config.layer_specs.assign(layers, plain_layer(fields, config));
  add_rope(fields, config);
  set_windows(fields, fields.has("sliding_window"), config);
  config.fused_projections = true;
}

}  // namespace

const Family phi3{"Phi3ForCausalLM", "phi3", R"({
    "max_position_embeddings": 4096, "original_max_position_embeddings": 4096,
    "partial_rotary_factor": 1.0, "rms_norm_eps": 1e-5,
    "bos_token_id": 1, "eos_token_id": 32000})",
                  read_phi3};

}  // namespace coppice
