// Gemma 2: norms before and after attention and FFN, soft caps, a window in every other layer.
#include "models/families/family.h"

namespace coppice {
namespace {

void read_gemma2(const Fields& fields, ModelConfig& config) {
  config.layer_specs.assign(static_cast<std::size_t>(config.layers), gemma_layer(fields, config));
  add_rope(fields, config);
  set_windows(fields,
              windowed_layers(fields, config, [](std::int32_t layer) { return layer % 2 == 0; }),
              config);
}

}  // namespace

const Family gemma2{"Gemma2ForCausalLM", "gemma2", R"({
    "vocab_size": 256000, "hidden_size": 2304, "intermediate_size": 9216, "num_hidden_layers": 26,
    "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh", "max_position_embeddings": 8192,
    "tie_word_embeddings": true, "bos_token_id": 2, "eos_token_id": 1,
    "query_pre_attn_scalar": 256, "sliding_window": 4096,
    "final_logit_softcapping": 30.0, "attn_logit_softcapping": 50.0})",
                    read_gemma2};

}  // namespace coppice
