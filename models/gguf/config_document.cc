#include <algorithm>
#include <cmath>
#include <set>
#include <span>

#include "base/error.h"
#include "models/gguf/architectures.h"
#include "models/gguf/documents.h"
#include "models/gguf/vocabulary.h"

namespace coppice {
namespace {

using Json = nlohmann::json;

class ConfigWriter {
 public:
  explicit ConfigWriter(const GgufFile& file)
      : file_(file), fields_(file.fields()), name_(fields_.text("general.architecture", "")) {
    if (name_.empty()) fields_.missing("general.architecture");
    known_ = gguf_architecture(name_);
  }

  Json write() {
    write_tokens();
    if (known_ == nullptr) {
      write_unknown();
      return std::move(config_);
    }
    config_["architectures"] = {known_->family};
    config_["model_type"] = known_->model_type;
    for (const Count& count : counts) {
      config_[count.field] = fields_.integer(key(count.suffix).c_str(), 1, count.most);
    }
    config_["rms_norm_eps"] = fields_.positive(key("attention.layer_norm_rms_epsilon").c_str());
    // What files leave out means the same in every architecture, other than in config.json.
    const std::int64_t kv_heads = integer("attention.head_count_kv", 1, heads());
    if (heads() % kv_heads != 0) {
      refuse("attention.head_count_kv", cat("a divisor of attention.head_count, ", heads()));
    }
    config_["num_key_value_heads"] = kv_heads;
    if (find("attention.key_length") == nullptr && hidden() % heads() != 0) {
      refuse("embedding_length", cat("a multiple of attention.head_count, ", heads()));
    }
    head_dim_ = integer("attention.key_length", 1, hidden() / heads());
    if (head_dim_ % 2 != 0 || head_dim_ > most_head_dim) {
      const std::string wanted = cat("even and at most ", most_head_dim);
      if (find("attention.key_length") != nullptr) refuse("attention.key_length", wanted);
      refuse("embedding_length",
             cat("attention.head_count, ", heads(), ", times a number that is ", wanted));
    }
    config_["head_dim"] = head_dim_;
    if (integer("attention.value_length", 1, head_dim_) != head_dim_) {
      refuse("attention.value_length", cat("attention.key_length, ", head_dim_));
    }
    config_["num_local_experts"] = integer("expert_count", 0, 0);
    const auto holds = [&](const char* tensor) { return file_.find(tensor) != nullptr; };
    config_["tie_word_embeddings"] = !holds("output.weight");
    config_["attention_bias"] = holds("blk.0.attn_q.bias");
    config_["mlp_bias"] = holds("blk.0.ffn_up.bias");
    write_rope();
    if (name_.starts_with("gemma")) write_gemma();
    if (name_ == "phi3") write_phi3();
    pass_on_rest();
    return std::move(config_);
  }

 private:
  struct Shape {
    const char* field;
    const char* suffix;
  };
  struct Count {
    const char* field;
    const char* suffix;
    std::int64_t most;
  };
  static constexpr Count counts[] = {{"hidden_size", "embedding_length", most_width},
                                     {"intermediate_size", "feed_forward_length", most_width},
                                     {"num_hidden_layers", "block_count", most_layers},
                                     {"num_attention_heads", "attention.head_count", most_heads},
                                     {"max_position_embeddings", "context_length", most_context}};

  /// The architecture's key, which is looked at.
  std::string key(const char* suffix) {
    std::string whole = cat(name_, ".", suffix);
    seen_.insert(whole);
    return whole;
  }
  const Json* find(const char* suffix) { return fields_.find(key(suffix).c_str()); }
  std::int64_t integer(const char* suffix, std::int64_t least, std::int64_t otherwise) {
    return fields_.integer(key(suffix).c_str(), least, most_context, otherwise);
  }
  [[noreturn]] void refuse(const char* suffix, const std::string& wanted) {
    fields_.refuse(key(suffix).c_str(), wanted);
  }
  std::int64_t heads() const { return config_["num_attention_heads"]; }
  std::int64_t hidden() const { return config_["hidden_size"]; }
  std::int64_t layers() const { return config_["num_hidden_layers"]; }

  void write_tokens() {
    const GgufVocabulary vocabulary(file_);
    const GgufTensor* const table = file_.find("token_embd.weight");
    if (table != nullptr && table->shape.size() == 2) {
      config_["vocab_size"] = table->shape.front();
    } else if (vocabulary.size() > 0) {
      config_["vocab_size"] = vocabulary.size();
    } else if (const Json* size = find("vocab_size")) {
      config_["vocab_size"] = *size;
    }
    key("vocab_size");  // the table's rows count
    const auto id = [&](const char* name) {
      try {
        const auto token = vocabulary.named(name);
        return token ? Json(*token) : Json();
      } catch (const Error&) {
        return Json();  // generation_config.json says what is wrong
      }
    };
    config_["bos_token_id"] = id("bos");
    config_["eos_token_id"] = id("eos");
  }

  /// What can be told of any architecture, for a description.
  void write_unknown() {
    config_["architectures"] = {name_};
    for (const Count& count : counts) {
      if (const Json* value = find(count.suffix)) config_[count.field] = *value;
    }
    for (const auto& [field, suffix] :
         {Shape{"num_key_value_heads", "attention.head_count_kv"},
          Shape{"head_dim", "attention.key_length"}, Shape{"num_experts", "expert_count"},
          Shape{"kv_lora_rank", "attention.kv_lora_rank"}, Shape{"state_size", "ssm.state_size"}}) {
      if (const Json* value = find(suffix)) config_[field] = *value;
    }
  }

  /// The numbers of a small tensor.
  Json floats(const char* tensor) {
    const GgufTensor& stored = *file_.find(tensor);
    if (file_.format_of(tensor) != WeightFormat::f32 || stored.elements() > most_head_dim) {
      throw_failure(cat(file_.name(), ": tensor ", tensor, " of ", stored.elements(),
                        " numbers is no list of F32; fetch the file again"));
    }
    std::vector<float> values(stored.elements());
    file_.read(stored, 0, std::as_writable_bytes(std::span(values)));
    return values;
  }

  void write_rope() {
    constexpr double usual_theta = 10000.0;
    config_["rope_theta"] = fields_.positive(key("rope.freq_base").c_str(), usual_theta);
    const std::int64_t rotated = integer("rope.dimension_count", 1, head_dim_);
    if (rotated > head_dim_) refuse("rope.dimension_count", cat("at most ", head_dim_));
    if (rotated < head_dim_) {
      // Above the quotient rather than below: the product is cut down to a whole number.
      config_["partial_rotary_factor"] =
          std::nextafter(static_cast<double>(rotated) / static_cast<double>(head_dim_), 1.0);
    }
    const double old_factor = fields_.positive(key("rope.scale_linear").c_str(), 1.0);
    const std::string kind =
        fields_.text(key("rope.scaling.type").c_str(), old_factor == 1.0 ? "none" : "linear");
    const double factor = fields_.positive(key("rope.scaling.factor").c_str(), old_factor);
    Json scaling;
    constexpr const char *longs = "rope_factors_long.weight", *shorts = "rope_factors_short.weight";
    const bool has_long = file_.find(longs) != nullptr, has_short = file_.find(shorts) != nullptr;
    if (has_long != has_short) {
      throw_failure(cat(file_.name(), ": has the tensor ", has_long ? longs : shorts, " but not ",
                        has_long ? shorts : longs, "; fetch the file again"));
    }
    if (has_long) {
      scaling = {{"rope_type", "longrope"},
                 {"long_factor", floats(longs)},
                 {"short_factor", floats(shorts)}};
      if (const Json* scale = find("rope.scaling.attn_factor"))
        scaling["attention_factor"] = *scale;
    } else if (file_.find("rope_freqs.weight") != nullptr) {
      scaling = {{"rope_type", kind == "none" ? "llama3" : cat(kind, " with rope_freqs.weight")},
                 {"frequency_factors", floats("rope_freqs.weight")}};
    } else if (kind == "yarn") {
      scaling = {{"rope_type", kind}, {"factor", factor}};
      write_yarn(factor, scaling);
    } else if (kind != "none" && (kind != "linear" || factor != 1.0)) {
      scaling = {{"rope_type", kind}, {"factor", factor}};
    }
    const char* const original = "rope.scaling.original_context_length";
    if (find(original) != nullptr) {
      config_["original_max_position_embeddings"] = integer(original, 1, 0);
    }
    if (!scaling.is_null()) config_["rope_scaling"] = std::move(scaling);
    key("rope.scaling.finetuned");
  }

  void write_yarn(double factor, Json& scaling) {
    for (const auto& [field, suffix] : {Shape{"beta_fast", "rope.scaling.yarn_beta_fast"},
                                        Shape{"beta_slow", "rope.scaling.yarn_beta_slow"}}) {
      if (const Json* value = find(suffix)) scaling[field] = *value;
    }
    // Here a factor of YaRN's own scale, there in its place.
    const double scale = fields_.positive(key("rope.scaling.attn_factor").c_str(), 1.0);
    if (scale != 1.0) scaling["attention_factor"] = scale * (0.1 * std::log(factor) + 1.0);
  }

  void write_gemma() {
    // The largest models of both divide by another number, which no key says.
    const bool is_27b = layers() == (name_ == "gemma2" ? 46 : 62);
    config_["query_pre_attn_scalar"] = is_27b ? hidden() / heads() : head_dim_;
    for (const auto& [field, suffix] : {Shape{"attn_logit_softcapping", "attn_logit_softcapping"},
                                        Shape{"final_logit_softcapping", "final_logit_softcapping"},
                                        Shape{"sliding_window", "attention.sliding_window"}}) {
      if (const Json* value = find(suffix)) config_[field] = *value;
    }
    if (name_ == "gemma3") {
      if (const Json* theta = find("rope.freq_base_swa")) config_["rope_local_base_freq"] = *theta;
    }
    write_layer_types();
  }

  /// Which layers have a window: all but every n-th, or those of which a list says true or 1.
  void write_layer_types() {
    const char* const suffix = "attention.sliding_window_pattern";
    const Json* const pattern = find(suffix);
    if (pattern == nullptr) return;
    const auto says = [](const Json& one) {
      return one.is_boolean() || (one.is_number_integer() && (one == 0 || one == 1));
    };
    const bool is_list = pattern->is_array();
    if (is_list && (pattern->size() != static_cast<std::size_t>(layers()) ||
                    !std::all_of(pattern->begin(), pattern->end(), says))) {
      refuse(suffix, cat("a list of block_count, ", layers(), ", that says true or false of each"));
    }
    const std::int64_t every = is_list ? 0 : fields_.integer(key(suffix).c_str(), 1, most_layers);
    for (std::int64_t layer = 0; layer < layers(); ++layer) {
      const bool windowed = is_list ? (*pattern)[static_cast<std::size_t>(layer)] == true ||
                                          (*pattern)[static_cast<std::size_t>(layer)] == 1
                                    : (layer + 1) % every != 0;
      config_["layer_types"].push_back(windowed ? "sliding_attention" : "full_attention");
    }
  }

  void write_phi3() {
    const std::int64_t window = integer("attention.sliding_window", 0, 0);
    config_["sliding_window"] = window > 0 ? Json(window) : Json();
  }

  /// Hands on the architecture's keys that were not looked at, so that they are named as not
  /// obeyed, or refused (unmet_metadata.h). Of texts and lists, which may be long, the kind is
  /// enough.
  void pass_on_rest() {
    for (const auto& [key, value] : file_.metadata().items()) {
      if (!key.starts_with(name_ + ".") || seen_.contains(key)) continue;
      config_[key] = value.is_number() || value.is_boolean() ? value
                     : value.is_string()                     ? Json("a text")
                                                             : Json("a list");
    }
  }

  const GgufFile& file_;
  const Fields fields_;
  const std::string name_;
  const GgufArchitecture* known_ = nullptr;
  std::int64_t head_dim_ = 0;
  std::set<std::string> seen_;
  Json config_ = Json::object();
};

}  // namespace

Json gguf_config(const GgufFile& file) { return ConfigWriter(file).write(); }

}  // namespace coppice
