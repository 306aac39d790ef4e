#include "models/config.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "base/json_file.h"
#include "models/config_fields.h"
#include "models/families/family.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/unmet_metadata.h"
#include "models/packed_checkpoint.h"
#include "models/settings/setting_file.h"
#include "models/settings/special_ids.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t largest_config = 4u << 20;

/// The family of a model, by its architecture or, without one, by its type; nullptr: none known.
const Family* family_of(const Fields& fields, ModelConfig& config) {
  config.model_type = fields.text("model_type", "");
  if (const Json* list = fields.find("architectures")) {
    const bool named = list->is_array() && !list->empty();
    if (!list->is_array() || (named && !list->front().is_string())) {
      fields.refuse("architectures", "a list of names");
    }
    if (named) config.architecture = list->front().get<std::string>();
  }
  for (const Family* family : families()) {
    if (config.architecture.empty() ? family->model_type == config.model_type
                                    : family->architecture == config.architecture) {
      config.architecture = family->architecture;
      return family;
    }
  }
  return nullptr;
}

/// What coppice lacks, by the field that asks for it. Fields with defaults are the family's own.
void check_parts(const Fields& fields, const Json& defaults, ModelConfig& config) {
  static constexpr std::pair<const char*, const char*> parts[] = {
      {"num_local_experts", "mixture of experts"},
      {"num_experts", "mixture of experts"},
      {"n_routed_experts", "mixture of experts"},
      {"kv_lora_rank", "multi-head latent attention"},
      {"linear_num_value_heads", "linear attention"},
      {"full_attention_interval", "linear attention"},
      {"linear_attn_config", "linear attention"},
      {"ssm_cfg", "a state-space model"},
      {"mamba_d_state", "a state-space model"},
      {"state_size", "a state-space model"},
      {"is_encoder_decoder", "an encoder beside the decoder"},
      {"use_qk_norm", "norms of queries and keys"},
      {"attn_logit_softcapping", "soft caps"},
      {"final_logit_softcapping", "soft caps"},
      {"rope_interleaved", "rotary embedding of neighbouring elements"},
      {"draft_vocab_size", "a draft head with a vocabulary of its own"},
      {"logit_scale", "scaled logits"},
      {"logits_scaling", "scaled logits"},
      {"embedding_multiplier", "scaled embeddings"},
      {"residual_multiplier", "scaled residuals"},
      {"attention_multiplier", "scaled attention"},
  };
  std::string_view said;
  for (const auto& [name, part] : parts) {
    const Json* value = fields.find(name);
    if (value == nullptr || part == said || defaults.contains(name)) continue;
    if (*value == false || *value == 0 || *value == 1) continue;
    said = part;
    config.unsupported.push_back(cat(part, " (", name, value->is_structured() ? "" : " ",
                                     value->is_structured() ? "" : shown(*value), ")"));
  }
  read_packing(fields, config);
}

void read_shapes(const Fields& fields, ModelConfig& config) {
  config.vocab_size = fields.integer("vocab_size", 1, most_vocab);
  config.hidden_size = fields.integer("hidden_size", 1, most_width);
  config.intermediate_size = fields.integer("intermediate_size", 1, most_width);
  config.layers = static_cast<std::int32_t>(fields.integer("num_hidden_layers", 1, most_layers));
  config.heads = static_cast<std::int32_t>(fields.integer("num_attention_heads", 1, most_heads));
  config.kv_heads =
      static_cast<std::int32_t>(fields.integer("num_key_value_heads", 1, most_heads, config.heads));
  config.context_length =
      static_cast<std::int32_t>(fields.integer("max_position_embeddings", 1, most_context));
  if (config.heads % config.kv_heads != 0) {
    fields.refuse("num_key_value_heads", cat("a divisor of num_attention_heads, ", config.heads));
  }
  if (fields.has("head_dim")) {
    config.head_dim = static_cast<std::int32_t>(fields.integer("head_dim", 1, most_head_dim));
  } else if (config.hidden_size % config.heads != 0) {
    fields.refuse("hidden_size", cat("a multiple of num_attention_heads, ", config.heads,
                                     ", where head_dim is not given"));
  } else {
    config.head_dim = static_cast<std::int32_t>(config.hidden_size / config.heads);
  }
  if (config.head_dim % 2 != 0 || config.head_dim > most_head_dim) {
    throw_failure(cat(fields.where(), ": head_dim is ", config.head_dim,
                      ", but must be even and at most ", most_head_dim,
                      " for rotary embedding; correct the file"));
  }
  if (std::int64_t{config.heads} * config.head_dim > most_width) {
    throw_failure(cat(fields.where(), ": num_attention_heads ", config.heads, " times head_dim ",
                      config.head_dim, " is more than ", most_width, "; correct the file"));
  }
  const double epsilon = fields.positive("rms_norm_eps", 1e-6);
  if (epsilon < 1e-30 || epsilon > 1e30) {
    fields.refuse("rms_norm_eps", "a number from 1e-30 to 1e30");
  }
  config.rms_norm_eps = static_cast<float>(epsilon);
}

/// Another architecture: its parts that coppice lacks, and the shapes, if they can be read.
void describe_unknown(const Fields& fields, ModelConfig& config) {
  check_parts(fields, Json::object(), config);
  if (fields.has("vision_config")) config.unsupported.push_back("vision (vision_config)");
  std::string known;
  for (const Family* family : families())
    known += cat(known.empty() ? "" : ", ", family->architecture);
  const std::string name = config.architecture.empty()
                               ? cat("model type ", quote(config.model_type))
                               : cat("architecture ", quote(config.architecture));
  if (config.unsupported.empty()) {
    config.unsupported.push_back(cat(name, " (coppice runs ", known, ")"));
  } else {
    config.unsupported.front() = cat(name, ": ", config.unsupported.front());
  }
  // Other families name and shape things in their own ways: what can be read is described.
  try {
    read_shapes(fields, config);
    config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
    read_config_ids(fields, fields, config);
  } catch (const Error&) {
  }
}

/// Has `error` say what `read` throws, unless it says something already.
void note_error(std::string& error, const auto& read) {
  try {
    read();
  } catch (const Error& thrown) {
    if (error.empty()) error = thrown.what();
  }
}

ModelConfig config_of(const Json& object, const std::string& where, std::string& wrong_ids) {
  const Fields plain(object, where);
  ModelConfig config;
  const Family* family = family_of(plain, config);
  if (family == nullptr) {
    describe_unknown(plain, config);
    return config;
  }
  const Json defaults = Json::parse(family->defaults);
  const bool nested = family->text_field != nullptr;
  const Fields fields =
      nested ? plain.inside(family->text_field, &defaults) : Fields(object, where, &defaults);
  read_shapes(fields, config);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  family->read(fields, config);
  for (const RopeSpec& rope : config.ropes) {
    if (rope.rotated == config.head_dim || defaults.contains("partial_rotary_factor")) continue;
    config.unsupported.push_back(cat("rotary embedding of ", rope.rotated, " of a head's ",
                                     config.head_dim, " elements (partial_rotary_factor)"));
  }
  check_parts(fields, defaults, config);
  if (nested) check_parts(plain, defaults, config);
  note_error(wrong_ids, [&] { read_config_ids(plain, fields, config); });
  return config;
}

/// The folder's GGUF files of models, the first part of several; by name.
std::vector<std::string> gguf_files_in(const std::filesystem::path& folder) {
  std::vector<std::string> files;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.ends_with(".gguf") && !name.starts_with("mmproj")) files.push_back(entry->path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

void require_model(const std::filesystem::path& path) {
  std::error_code status;
  if (std::filesystem::is_directory(path, status) || is_gguf(path)) return;
  if (!std::filesystem::exists(path, status)) {
    throw_failure(cat(path.string(), ": no such folder or GGUF file; name a Hugging Face model ",
                      "folder or a GGUF file (coppice downloads none)"));
  }
  const std::string type = path.extension().string();
  throw_failure(cat(path.string(), ": a file, not a folder",
                    type == ".safetensors" || type == ".json"
                        ? "; name the folder that it lies in"
                        : "; name a Hugging Face model folder, with config.json and safetensors, "
                          "or a GGUF file"));
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& path) {
  std::string wrong_ids;
  ModelConfig config = read_config(path, wrong_ids);
  if (!wrong_ids.empty()) throw_failure(wrong_ids);
  return config;
}

ModelConfig read_config(const std::filesystem::path& path, std::string& wrong_ids) {
  require_model(path);
  const auto gguf = is_gguf(path) ? open_gguf(path) : nullptr;  // once for both documents
  const SettingFile file(path, "config.json", largest_config);
  if (!file.is_there()) {
    const std::vector<std::string> files = gguf_files_in(path);
    if (files.empty()) {
      throw_failure(
          cat(file.where(), ": no such file; name a Hugging Face model folder, or a GGUF file"));
    }
    throw_failure(cat(path.string(), ": no config.json, but ",
                      files.size() > 1 ? cat(files.size(), " GGUF files") : "a GGUF file",
                      "; name ",
                      files.size() > 1 ? "one of them in place of the folder, such as "
                                       : "it in place of the folder: ",
                      quote(files.front())));
  }
  ModelConfig config = config_of(file.object(), file.where(), wrong_ids);
  if (gguf != nullptr) {
    config.one_based_norms = false;  // its files hold 1 + w
    std::vector<std::string> unmet = unmet_metadata(file.object(), config);
    std::move(unmet.begin(), unmet.end(), std::back_inserter(config.unsupported));
  }
  // Nothing more is needed of a model that cannot be run.
  if (config.vocab_size > 0) {
    std::string ignored;
    note_error(config.unsupported.empty() ? wrong_ids : ignored, [&] {
      const SettingFile generation(path, "generation_config.json", largest_config);
      read_generation_ids(Fields(generation.object(), generation.where()), config);
    });
  }
  return config;
}

}  // namespace coppice
