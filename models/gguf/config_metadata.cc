#include "models/gguf/config_metadata.h"

#include <algorithm>
#include <cmath>
#include <functional>

#include "base/error.h"
#include "models/gguf/architectures.h"
#include "models/rope_table.h"

namespace coppice {
namespace {

/// The root that scores are divided by, as it is in a LayerSpec.
float scale_of(std::int64_t number) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(number)));
}

/// What Llama 3's scaling divides every frequency by: a reader who divides has the same
/// frequencies, or the next floats where no quotient is the very same.
std::vector<float> divisors_of(const RopeSpec& rope) {
  if (!rope.frequency_factors.empty()) {
    return {rope.frequency_factors.begin(), rope.frequency_factors.end()};
  }
  RopeSpec unscaled = rope;
  unscaled.kind = RopeSpec::Kind::plain;
  const std::vector<float> from = rope_frequencies(unscaled, 1), to = rope_frequencies(rope, 1);
  std::vector<float> divisors;
  for (std::size_t i = 0; i < from.size(); ++i) {
    float divisor = from[i] / to[i];
    // The quotient is rounded: one of its neighbours may lead closer.
    for (const float neighbour : {std::nextafter(divisor, 0.0f), std::nextafter(divisor, 1e9f)}) {
      if (std::abs(from[i] / neighbour - to[i]) < std::abs(from[i] / divisor - to[i])) {
        divisor = neighbour;
      }
    }
    divisors.push_back(divisor);
  }
  return divisors;
}

class MetadataWriter {
 public:
  MetadataWriter(const ModelConfig& config, const std::string& where)
      : config_(config), where_(where) {
    const GgufArchitecture* const architecture = gguf_architecture_of(config.architecture);
    if (architecture == nullptr) refuse(cat("a model of the architecture ", config.architecture));
    out_.architecture = architecture->name;
  }

  ConfigMetadata write() {
    require_usual_parts();
    const auto count = [&](const char* suffix, std::int64_t value) {
      add(suffix, static_cast<std::uint32_t>(value));
    };
    count("vocab_size", config_.vocab_size);
    count("context_length", config_.context_length);
    count("embedding_length", config_.hidden_size);
    count("feed_forward_length", config_.intermediate_size);
    count("block_count", config_.layers);
    count("attention.head_count", config_.heads);
    count("attention.head_count_kv", config_.kv_heads);
    count("attention.key_length", config_.head_dim);
    count("attention.value_length", config_.head_dim);
    add("attention.layer_norm_rms_epsilon", config_.rms_norm_eps);
    write_windows();
    write_rope(config_.ropes.front());
    if (is("gemma3")) write_local_rope(config_.ropes.back());
    if (config_.final_soft_cap > 0.0f) add("final_logit_softcapping", config_.final_soft_cap);
    if (first().attention.soft_cap > 0.0f) {
      add("attn_logit_softcapping", first().attention.soft_cap);
    }
    return std::move(out_);
  }

 private:
  bool is(std::string_view name) const { return out_.architecture == name; }
  bool is_gemma() const { return out_.architecture.starts_with("gemma"); }
  const LayerSpec& first() const { return config_.layer_specs.front(); }
  bool all_layers(const std::function<bool(std::size_t, const LayerSpec&)>& holds) const {
    for (std::size_t i = 0; i < config_.layer_specs.size(); ++i) {
      if (!holds(i, config_.layer_specs[i])) return false;
    }
    return true;
  }

  void add(const char* suffix, GgufValue value) {
    out_.values.emplace_back(cat(out_.architecture, ".", suffix), std::move(value));
  }
  [[noreturn]] void refuse(const std::string& what) const {
    throw_failure(cat(where_, ": a GGUF file cannot say ", what,
                      "; load the model itself, with --target-weights in fewer bits"));
  }

  /// What readers know of an architecture without being told.
  void require_usual_parts() const {
    const Activation activation = is_gemma() ? Activation::gelu_tanh : Activation::silu;
    if (first().activation != activation) {
      refuse(cat("the activation of this ", config_.architecture));
    }
    const bool is_27b = is_gemma() && config_.layers == (is("gemma2") ? 46 : 62);
    const std::int64_t root = is_27b ? config_.hidden_size / config_.heads : config_.head_dim;
    if (first().attention.scale != scale_of(root)) {
      refuse(cat("what this model's scores are divided by (query_pre_attn_scalar), only ", root));
    }
    if (is("gemma2") && (first().attention.soft_cap <= 0.0f || config_.final_soft_cap <= 0.0f)) {
      refuse("that a Gemma 2 has no soft caps");
    }
    if ((config_.output_bias || config_.mlp_bias) && !is("llama")) {
      refuse(cat("biases of ", config_.output_bias ? "o_proj" : "the FFN", " in a ",
                 config_.architecture));
    }
    const std::size_t every = is("smollm3") ? 4 : config_.layer_specs.size() + 1;
    const bool usual = all_layers([&](std::size_t i, const LayerSpec& layer) {
      return (layer.rope == LayerSpec::no_rope) == ((i + 1) % every == 0);
    });
    if (!usual) refuse("which layers of this model have no positions (no_rope_layers)");
  }

  void write_windows() {
    std::int32_t window = 0;
    for (const LayerSpec& layer : config_.layer_specs) {
      window = std::max(window, layer.attention.window);
    }
    const bool all = all_layers(
        [&](std::size_t, const LayerSpec& layer) { return layer.attention.window == window; });
    if (is("phi3")) {
      if (!all) refuse("that some layers have a window (layer_types)");
      if (window > 0) add("attention.sliding_window", static_cast<std::uint32_t>(window));
    } else if (is_gemma()) {
      // A window as long as the context is none.
      add("attention.sliding_window",
          static_cast<std::uint32_t>(window > 0 ? window : config_.context_length));
      write_pattern(window);
    } else if (window > 0) {
      refuse(cat("windows of attention in a ", config_.architecture, " (sliding_window ", window,
                 "; where texts are shorter, set it to null)"));
    }
  }

  /// Which of Gemma's layers have a window, unless it is as in all published models.
  void write_pattern(std::int32_t window) {
    const std::size_t usual = is("gemma2") ? 2 : 6;
    std::vector<bool> windowed;
    for (const LayerSpec& layer : config_.layer_specs) {
      // Windows as long as the context are not seen, but layers with them have their own rotation.
      windowed.push_back(is("gemma3") ? layer.rope == 1 : layer.attention.window > 0);
    }
    if (is("gemma2") && window == 0) return;
    for (std::size_t i = 0; i < windowed.size(); ++i) {
      if (windowed[i] == ((i + 1) % usual != 0)) continue;
      return add("attention.sliding_window_pattern", std::move(windowed));
    }
  }

  void write_rope(const RopeSpec& rope) {
    using Kind = RopeSpec::Kind;
    add("rope.freq_base", static_cast<float>(rope.theta));
    add("rope.dimension_count", static_cast<std::uint32_t>(rope.rotated));
    if (rope.original_context != config_.context_length || is("phi3")) {
      add("rope.scaling.original_context_length",
          static_cast<std::uint32_t>(rope.original_context));
    }
    const auto scale = [&](const char* type) {
      add("rope.scaling.type", std::string(type));
      add("rope.scaling.factor", static_cast<float>(rope.factor));
    };
    switch (rope.kind) {
      case Kind::plain:
        break;
      case Kind::linear:
        scale("linear");
        break;
      case Kind::llama3:
        out_.tensors.emplace_back("rope_freqs.weight", divisors_of(rope));
        break;
      case Kind::yarn: {
        if (!rope.truncate) refuse("that YaRN's ramp is not cut to whole numbers (truncate)");
        scale("yarn");
        add("rope.scaling.yarn_beta_fast", static_cast<float>(rope.beta_fast));
        add("rope.scaling.yarn_beta_slow", static_cast<float>(rope.beta_slow));
        // A factor of YaRN's own scale.
        const double usual = 0.1 * std::log(rope.factor) + 1.0;
        if (rope.attention_factor != usual) {
          add("rope.scaling.attn_factor", static_cast<float>(rope.attention_factor / usual));
        }
        break;
      }
      case Kind::longrope:
        out_.tensors.emplace_back(
            "rope_factors_long.weight",
            std::vector<float>(rope.long_factors.begin(), rope.long_factors.end()));
        out_.tensors.emplace_back(
            "rope_factors_short.weight",
            std::vector<float>(rope.short_factors.begin(), rope.short_factors.end()));
        add("rope.scaling.attn_factor", static_cast<float>(rope.attention_factor));
    }
  }

  /// Writes the RoPE of Gemma 3's layers with a window.
  void write_local_rope(const RopeSpec& rope) {
    if (rope.kind != RopeSpec::Kind::plain) refuse("scaled rotation in layers with a window");
    add("rope.freq_base_swa", static_cast<float>(rope.theta));
  }

  const ModelConfig& config_;
  const std::string& where_;
  ConfigMetadata out_;
};

}  // namespace

ConfigMetadata config_metadata(const ModelConfig& config, const std::string& where) {
  return MetadataWriter(config, where).write();
}

}  // namespace coppice
