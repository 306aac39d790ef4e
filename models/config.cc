#include "models/config.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "base/error.h"
#include "base/files.h"
#include "base/json_file.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

constexpr std::uint64_t largest_config = 4u << 20;
constexpr std::size_t most_special_tokens = 1024;

// Beyond any model, and small enough that products of three stay far inside 64 bits.
constexpr std::int64_t most_vocab = 1 << 24;
constexpr std::int64_t most_width = 1 << 20;
constexpr std::int64_t most_layers = 1 << 12;
constexpr std::int64_t most_heads = 1 << 14;
constexpr std::int64_t most_head_dim = 1 << 12;
constexpr std::int64_t most_context = 1 << 30;

/// One JSON object of a file, with checked access to its fields. null counts as absent.
class Fields {
 public:
  Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {}

  const Json* find(const char* name) const {
    const auto it = object_.find(name);
    return it == object_.end() || it->is_null() ? nullptr : &*it;
  }
  bool has(const char* name) const { return find(name) != nullptr; }

  [[noreturn]] void refuse(const char* name, const Json& value, const std::string& wanted) const {
    throw_failure(cat(where_, ": ", name, " is ", shown(value), ", but must be ", wanted,
                      "; correct the file or fetch it again"));
  }
  [[noreturn]] void missing(const char* name) const {
    throw_failure(cat(where_, ": ", name, " is missing; fetch the file again"));
  }

  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most) const {
    const Json* value = find(name);
    if (value == nullptr) missing(name);
    const std::string wanted = cat("an integer from ", least, " to ", most);
    if (!value->is_number_integer()) refuse(name, *value, wanted);
    if (value->is_number_unsigned()) {
      const auto number = value->get<std::uint64_t>();
      if (number > static_cast<std::uint64_t>(most)) refuse(name, *value, wanted);
    }
    const auto number = value->get<std::int64_t>();
    if (number < least || number > most) refuse(name, *value, wanted);
    return number;
  }
  std::int64_t integer(const char* name, std::int64_t least, std::int64_t most,
                       std::int64_t otherwise) const {
    return has(name) ? integer(name, least, most) : otherwise;
  }
  /// A finite number above 0.
  double positive(const char* name) const {
    const Json* value = find(name);
    if (value == nullptr) missing(name);
    if (!value->is_number()) refuse(name, *value, "a number above 0");
    const double number = value->get<double>();
    if (!std::isfinite(number) || number <= 0.0) refuse(name, *value, "a number above 0");
    return number;
  }
  double positive(const char* name, double otherwise) const {
    return has(name) ? positive(name) : otherwise;
  }
  bool boolean(const char* name, bool otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_boolean()) refuse(name, *value, "true or false");
    return value->get<bool>();
  }
  std::string text(const char* name, const std::string& otherwise) const {
    const Json* value = find(name);
    if (value == nullptr) return otherwise;
    if (!value->is_string()) refuse(name, *value, "a string");
    return value->get<std::string>();
  }

 private:
  const Json& object_;
  std::string where_;
};

std::string architecture_of(const Fields& fields, const std::string& model_type) {
  if (const Json* list = fields.find("architectures")) {
    if (!list->is_array() || list->empty() || !list->front().is_string()) {
      fields.refuse("architectures", *list, "a list of names");
    }
    return list->front().get<std::string>();
  }
  if (model_type == "llama") return "LlamaForCausalLM";
  if (model_type == "mistral") return "MistralForCausalLM";
  if (model_type == "qwen2") return "Qwen2ForCausalLM";
  return {};
}

void read_rope(const Fields& fields, const std::string& where, ModelConfig& config) {
  config.rope_theta = fields.positive("rope_theta", config.rope_theta);
  // transformers 5 writes rope_parameters, which holds theta too; earlier ones rope_scaling.
  const char* name = fields.has("rope_parameters") ? "rope_parameters" : "rope_scaling";
  const Json* object = fields.find(name);
  if (object == nullptr) return;
  if (!object->is_object()) fields.refuse(name, *object, "an object or null");
  const Fields rope(*object, cat(where, ": ", name));
  for (const auto& [key, value] : object->items()) {
    if (value.is_object()) {
      config.unsupported.push_back(cat("rotary settings per kind of layer (", name, ".", key, ")"));
      return;
    }
  }
  config.rope_theta = rope.positive("rope_theta", config.rope_theta);
  const double rotated = rope.positive("partial_rotary_factor", 1.0);
  if (rotated != 1.0) {
    config.unsupported.push_back(
        cat("rotary embedding of part of a head (partial_rotary_factor ", rotated, ")"));
  }
  const std::string kind = rope.text("rope_type", rope.text("type", "default"));
  RopeScaling& scaling = config.rope_scaling;
  if (kind == "default") return;
  if (kind == "linear") {
    scaling.kind = RopeScaling::Kind::linear;
    scaling.factor = rope.positive("factor");
  } else if (kind == "llama3") {
    scaling.kind = RopeScaling::Kind::llama3;
    scaling.factor = rope.positive("factor");
    scaling.low_freq_factor = rope.positive("low_freq_factor");
    scaling.high_freq_factor = rope.positive("high_freq_factor");
    scaling.original_context = rope.integer("original_max_position_embeddings", 1, most_context);
    if (scaling.high_freq_factor <= scaling.low_freq_factor) {
      rope.refuse("high_freq_factor", *rope.find("high_freq_factor"), "above low_freq_factor");
    }
  } else {
    config.unsupported.push_back(
        cat("rotary scaling of type ", quote(kind), " (coppice knows linear and llama3)"));
  }
}

/// Whether some layer looks back over a window shorter than the context.
void check_windows(const Fields& fields, ModelConfig& config) {
  if (const Json* kinds = fields.find("layer_types"); kinds != nullptr && kinds->is_array()) {
    for (const Json& kind : *kinds) {
      if (kind.is_string() && kind.get<std::string>() != "full_attention") {
        config.unsupported.push_back(cat("layers of type ", shown(kind)));
        return;
      }
    }
  }
  const bool mistral = config.architecture == "MistralForCausalLM";
  if (!mistral && !fields.boolean("use_sliding_window", false)) return;
  if (!fields.has("sliding_window")) return;
  const std::int64_t window = fields.integer("sliding_window", 1, most_context);
  if (window >= config.context_length) return;
  if (!mistral) {
    const auto full = fields.integer("max_window_layers", 0, most_layers, 0);
    if (full >= config.layers) return;
  }
  config.unsupported.push_back(cat("sliding-window attention over ", window, " tokens"));
}

void check_extras(const Fields& fields, ModelConfig& config) {
  const std::string activation = fields.text("hidden_act", "silu");
  if (activation != "silu" && activation != "swish") {
    config.unsupported.push_back(cat("activation ", quote(activation), " (coppice knows silu)"));
  }
  if (const Json* quantized = fields.find("quantization_config")) {
    std::string method;
    if (quantized->is_object() && quantized->contains("quant_method")) {
      method = " by " + shown((*quantized)["quant_method"]);
    }
    config.unsupported.push_back(
        cat("quantised weights", method, " (coppice reads F32, F16 and BF16)"));
  }
  for (const char* name : {"num_local_experts", "num_experts", "n_routed_experts"}) {
    if (const Json* value = fields.find(name); value != nullptr && *value != Json(0)) {
      config.unsupported.push_back(cat("mixture of experts (", name, " ", shown(*value), ")"));
      break;
    }
  }
  for (const char* name : {"attn_logit_softcapping", "final_logit_softcapping", "use_qk_norm",
                           "rope_interleaved", "draft_vocab_size"}) {
    const Json* value = fields.find(name);
    if (value != nullptr && *value != Json(false)) {
      config.unsupported.push_back(cat(name, " ", shown(*value)));
    }
  }
  for (const char* name : {"partial_rotary_factor", "logit_scale", "embedding_multiplier",
                           "residual_multiplier", "attention_multiplier", "logits_scaling"}) {
    const Json* value = fields.find(name);
    if (value != nullptr && !(value->is_number() && value->get<double>() == 1.0)) {
      config.unsupported.push_back(cat(name, " ", shown(*value)));
    }
  }
}

/// Appends token ids of a field that holds one integer or a list of them.
void add_tokens(const Fields& fields, const char* name, std::int64_t vocab_size,
                std::vector<TokenId>& tokens) {
  const Json* value = fields.find(name);
  if (value == nullptr) return;
  const auto add = [&](const Json& id) {
    const bool integer =
        id.is_number_integer() && !(id.is_number_unsigned() && id.get<std::uint64_t>() > INT32_MAX);
    const std::int64_t number = integer ? id.get<std::int64_t>() : -1;
    if (number < 0 || number >= vocab_size) {
      fields.refuse(name, *value, cat("token ids from 0 to ", vocab_size - 1));
    }
    const auto token = static_cast<TokenId>(number);
    if (std::find(tokens.begin(), tokens.end(), token) == tokens.end()) tokens.push_back(token);
  };
  if (value->is_array()) {
    if (value->size() > most_special_tokens) {
      fields.refuse(name, *value, cat("a list of at most ", most_special_tokens, " token ids"));
    }
    for (const Json& id : *value) add(id);
  } else {
    add(*value);
  }
}

void read_special_tokens(const std::filesystem::path& dir, const Fields& fields,
                         ModelConfig& config) {
  std::vector<TokenId> bos;
  add_tokens(fields, "bos_token_id", config.vocab_size, bos);
  add_tokens(fields, "eos_token_id", config.vocab_size, config.eos_tokens);
  const auto path = dir / "generation_config.json";
  if (is_there(path)) {
    const JsonObject object = read_json_object(path, largest_config);
    const Fields generation(*object, path.string());
    add_tokens(generation, "bos_token_id", config.vocab_size, bos);
    add_tokens(generation, "eos_token_id", config.vocab_size, config.eos_tokens);
  }
  if (!bos.empty()) config.bos_token = bos.front();
}

void read_shapes(const Fields& fields, const std::string& where, ModelConfig& config) {
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
    fields.refuse("num_key_value_heads", *fields.find("num_key_value_heads"),
                  cat("a divisor of num_attention_heads, ", config.heads));
  }
  if (fields.has("head_dim")) {
    config.head_dim = static_cast<std::int32_t>(fields.integer("head_dim", 1, most_head_dim));
  } else if (config.hidden_size % config.heads != 0) {
    fields.refuse(
        "hidden_size", *fields.find("hidden_size"),
        cat("a multiple of num_attention_heads, ", config.heads, ", where head_dim is not given"));
  } else {
    config.head_dim = static_cast<std::int32_t>(config.hidden_size / config.heads);
  }
  if (config.head_dim % 2 != 0 || config.head_dim > most_head_dim) {
    throw_failure(cat(where, ": head_dim is ", config.head_dim, ", but must be even and at most ",
                      most_head_dim, " for rotary embedding; correct the file"));
  }
  if (std::int64_t{config.heads} * config.head_dim > most_width) {
    throw_failure(cat(where, ": num_attention_heads ", config.heads, " times head_dim ",
                      config.head_dim, " is more than ", most_width, "; correct the file"));
  }
  const double epsilon = fields.positive("rms_norm_eps", 1e-6);
  if (epsilon < 1e-30 || epsilon > 1.0) {
    fields.refuse("rms_norm_eps", *fields.find("rms_norm_eps"), "a small number above 0");
  }
  config.rms_norm_eps = static_cast<float>(epsilon);
}

}  // namespace

std::int64_t ModelConfig::parameters() const {
  const std::int64_t q = std::int64_t{heads} * head_dim;
  const std::int64_t kv = std::int64_t{kv_heads} * head_dim;
  std::int64_t layer = hidden_size * (q + 2 * kv) + q * hidden_size +
                       3 * hidden_size * intermediate_size + 2 * hidden_size;
  if (qkv_bias) layer += q + 2 * kv;
  if (output_bias) layer += hidden_size;
  if (mlp_bias) layer += 2 * intermediate_size + hidden_size;
  const std::int64_t tables = (tie_word_embeddings ? 1 : 2) * vocab_size * hidden_size;
  return tables + layers * layer + hidden_size;
}

ModelConfig read_config(const std::filesystem::path& dir) {
  std::error_code status;
  if (!std::filesystem::is_directory(dir, status)) {
    throw_failure(cat(dir.string(), ": no such folder; name a Hugging Face model folder"));
  }
  const auto path = dir / "config.json";
  const std::string where = path.string();
  const JsonObject object = read_json_object(path, largest_config);
  const Fields fields(*object, where);

  ModelConfig config;
  config.model_type = fields.text("model_type", "");
  config.architecture = architecture_of(fields, config.model_type);
  const bool llama = config.architecture == "LlamaForCausalLM";
  const bool qwen2 = config.architecture == "Qwen2ForCausalLM";
  if (!llama && !qwen2 && config.architecture != "MistralForCausalLM") {
    const std::string name = config.architecture.empty()
                                 ? cat("model type ", quote(config.model_type))
                                 : cat("architecture ", quote(config.architecture));
    config.unsupported.push_back(
        cat(name, " (coppice runs LlamaForCausalLM, MistralForCausalLM and Qwen2ForCausalLM)"));
    // Other families name and shape things in their own ways: what can be read is described.
    try {
      read_shapes(fields, where, config);
      config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
      read_rope(fields, where, config);
      read_special_tokens(dir, fields, config);
    } catch (const Error&) {
    }
    return config;
  }
  read_shapes(fields, where, config);
  read_rope(fields, where, config);
  config.tie_word_embeddings = fields.boolean("tie_word_embeddings", false);
  config.qkv_bias = qwen2 || (llama && fields.boolean("attention_bias", false));
  config.output_bias = llama && config.qkv_bias;
  config.mlp_bias = llama && fields.boolean("mlp_bias", false);
  check_windows(fields, config);
  check_extras(fields, config);
  read_special_tokens(dir, fields, config);
  return config;
}

}  // namespace coppice
