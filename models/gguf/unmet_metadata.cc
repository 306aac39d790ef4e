#include "models/gguf/unmet_metadata.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string_view>

#include "base/error.h"
#include "base/json_file.h"

namespace coppice {
namespace {

/// A key behind its architecture, and values that change nothing.
struct CountingKey {
  std::string_view suffix;
  double neutral = 0.0, other = 0.0;
};

// Where 0 stands beside 1 it says, to other readers, that there is no such factor.
constexpr CountingKey counting_keys[] = {{"attn_logit_softcapping"},
                                         {"final_logit_softcapping"},
                                         {"router_logit_softcapping"},
                                         {"logit_scale", 1.0},
                                         {"residual_scale", 1.0},
                                         {"embedding_scale", 1.0},
                                         {"attention.scale"},
                                         {"attention.output_scale", 1.0},
                                         {"attention.temperature_scale"},
                                         {"attention.clamp_kqv"},
                                         {"attention.max_alibi_bias"},
                                         {"attention.causal", 1.0, 1.0},
                                         {"attention.sliding_window"},
                                         {"use_parallel_residual"},
                                         {"expert_count"},
                                         {"expert_used_count"},
                                         {"expert_shared_count"},
                                         {"rope.scaling.attn_factor", 1.0},
                                         {"rope.scaling.yarn_log_multiplier"},
                                         {"rope.freq_base_swa"}};

bool has_windows(const ModelConfig& config) {
  return std::any_of(config.layer_specs.begin(), config.layer_specs.end(),
                     [](const LayerSpec& layer) { return layer.attention.window > 0; });
}

bool changes_results(const CountingKey& key, const nlohmann::json& value,
                     const ModelConfig& config) {
  if (!value.is_number() && !value.is_boolean()) return true;
  const double number = value.is_boolean() ? (value == true ? 1.0 : 0.0) : value.get<double>();
  if (number == key.neutral || number == key.other) return false;
  if (key.suffix == "attention.sliding_window") return number < config.context_length;
  if (key.suffix == "attention.scale") {  // stored as a float, computed as a root
    const double own = config.layer_specs.front().attention.scale;
    return std::abs(number - own) > 1e-6 * own;
  }
  if (key.suffix == "rope.freq_base_swa") {
    return has_windows(config) && number != config.ropes.front().theta;
  }
  return true;
}

}  // namespace

std::vector<std::string> unmet_metadata(const nlohmann::json& document, const ModelConfig& config) {
  std::vector<std::string> unmet;
  if (config.layer_specs.empty() || config.ropes.empty()) return unmet;
  for (const auto& [name, value] : document.items()) {
    const std::string_view suffix = std::string_view(name).substr(name.find('.') + 1);
    const auto* const key =
        std::find_if(std::begin(counting_keys), std::end(counting_keys),
                     [&](const CountingKey& one) { return one.suffix == suffix; });
    // Fields of config.json have no dot.
    if (suffix.size() == name.size() || key == std::end(counting_keys)) continue;
    if (!changes_results(*key, value, config)) continue;
    unmet.push_back(
        cat(name, " ", shown(value), ", which is no part of a ", config.architecture, " here"));
  }
  return unmet;
}

}  // namespace coppice
