#include "models/settings/folder_notes.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <string_view>

#include "base/error.h"
#include "base/files.h"
#include "models/settings/generation_settings.h"
#include "models/settings/template_settings.h"
#include "models/settings/tokenizer_settings.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

/// Keys of config.json that the model is made of, or that are refused where they ask for more than
/// coppice has; and those that describe, or are for training and for other programs.
bool is_known(std::string_view key) {
  static const std::set<std::string_view> known = {
      "architectures", "attention_bias", "attention_multiplier", "attn_logit_softcapping",
      "bos_token_id", "draft_vocab_size", "embedding_multiplier", "eos_token_id",
      "final_logit_softcapping", "full_attention_interval", "head_dim", "hidden_act",
      "hidden_activation", "hidden_size", "intermediate_size", "is_encoder_decoder", "kv_lora_rank",
      "layer_types", "linear_attn_config", "linear_num_value_heads", "logit_scale",
      "logits_scaling", "mamba_d_state", "max_position_embeddings", "max_window_layers", "mlp_bias",
      "model_type", "n_routed_experts", "no_rope_layer_interval", "no_rope_layers",
      "num_attention_heads", "num_experts", "num_hidden_layers", "num_key_value_heads",
      "num_local_experts", "original_max_position_embeddings", "partial_rotary_factor",
      "quantization_config", "query_pre_attn_scalar", "residual_multiplier", "rms_norm_eps",
      "rope_interleaved", "rope_local_base_freq", "rope_parameters", "rope_scaling", "rope_theta",
      "sliding_window", "sliding_window_pattern", "_sliding_window_pattern", "ssm_cfg",
      "state_size", "text_config", "tie_word_embeddings", "tokenizer_class", "use_qk_norm",
      "use_bidirectional_attention", "use_sliding_window", "vision_config", "vocab_size",
      // describing, training, other programs
      "attention_dropout", "attn_implementation", "auto_map", "boi_token_index",
      "cache_implementation", "chunk_size_feed_forward", "cross_attention_hidden_size", "dtype",
      "embd_pdrop", "eoi_token_index", "finetuning_task", "gradient_checkpointing",
      "hidden_dropout", "id2label", "image_token_index", "initializer_range", "is_decoder",
      "label2id", "mm_tokens_per_image", "name_or_path", "output_attentions",
      "output_hidden_states", "pad_token_id", "prefix", "pretraining_tp", "problem_type",
      "resid_pdrop", "return_dict", "task_specific_params", "torch_dtype", "torchscript",
      "transformers.js_config", "transformers_version", "use_bfloat16", "use_cache",
      "use_return_dict"};
  return known.contains(key) || key.starts_with("_");
}

void note_config(const SettingFile& file, const ModelConfig& config, SettingNotes& notes) {
  const Json* const tie = file.find("tie_word_embeddings");
  if (tie != nullptr && *tie == true && !config.tie_word_embeddings) {
    notes.obeyed.push_back({file.name(), "tie_word_embeddings",
                            "true, but the stored lm_head.weight is another and is used"});
  }
  const SettingNotes generation = GenerationSettings(file.folder()).notes();
  const auto is_of_generation = [&](const std::string& key) {
    const auto is = [&](const Setting& one) { return one.file == file.name() && one.name == key; };
    return std::any_of(generation.obeyed.begin(), generation.obeyed.end(), is) ||
           std::any_of(generation.not_obeyed.begin(), generation.not_obeyed.end(), is);
  };
  if (config.layer_specs.empty()) return;  // an unknown family has keys of its own
  for (const auto& [key, value] : file.object().items()) {
    if (value.is_null() || value == false || is_known(key) || is_of_generation(key)) continue;
    notes.not_obeyed.push_back({file.name(), key, ""});
  }
}

std::string ids_text(const std::vector<TokenId>& ids) {
  std::string text;
  for (const TokenId id : ids) text += cat(text.empty() ? "" : ", ", id);
  return text.empty() ? "none" : text;
}

/// Names the file that the ids are from, or the family whose defaults they are.
void note_ids(const SettingFile& config, const SettingFile& generation, const ModelConfig& model,
              SettingNotes& notes) {
  const auto text = config.object().find("text_config");
  const auto in_config = [&](const char* key) {
    const bool nested = text != config.object().end() && text->is_object() && text->contains(key);
    return config.has(key) || nested;
  };
  const Json* const eos = generation.find("eos_token_id");
  const bool recommended = eos != nullptr && !eos->is_null();
  const std::string usual = cat(" (what a ", model.model_type, " has that leaves it out)");
  if (recommended || in_config("eos_token_id") || !model.eos_tokens.empty()) {
    const bool given = recommended || in_config("eos_token_id");
    notes.obeyed.push_back({recommended ? generation.name() : config.name(), "eos_token_id",
                            ids_text(model.eos_tokens) + (given ? "" : usual)});
  }
  if (model.bos_token >= 0) {
    const bool given = in_config("bos_token_id") || generation.has("bos_token_id");
    const Json* const own = config.find("bos_token_id");
    const bool second = own != nullptr && own->is_null();
    notes.obeyed.push_back({second ? generation.name() : config.name(), "bos_token_id",
                            cat(model.bos_token, given ? "" : usual)});
  }
}

}  // namespace

SettingNotes folder_notes(const std::filesystem::path& dir, const ModelConfig& config) {
  SettingNotes notes;
  const SettingFile file(dir, "config.json");
  note_config(file, config, notes);
  note_ids(file, SettingFile(dir, "generation_config.json"), config, notes);
  notes.append(GenerationSettings(dir).notes());
  notes.append(read_tokenizer_settings(dir).notes);
  notes.append(template_notes(dir));
  return notes;
}

}  // namespace coppice
