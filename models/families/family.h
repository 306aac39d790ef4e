// What tells one family of models from another when a config.json is read. The graph
// (models/model.cc) knows none of them: it follows the LayerSpecs that a family writes.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "models/config.h"
#include "models/config_fields.h"

namespace coppice {

struct Family {
  std::string_view architecture;  ///< in config.json's list of architectures
  std::string_view model_type;    ///< where that list is missing
  /// A JSON object: what transformers takes for fields that are absent, where that matters. Fields
  /// named here are the family's own; in another family some of them cannot be run.
  std::string_view defaults;
  /// Writes layers, rotary embeddings and all that is the family's own. The shapes are there.
  void (*read)(const Fields& fields, ModelConfig& config);
  /// The field with the settings of the text model in a model of more than text; nullptr: none.
  const char* text_field = nullptr;
};

extern const Family llama, mistral, qwen2, qwen3, gemma2, gemma3_text, gemma3, phi3, smollm3;

std::span<const Family* const> families();

// --- for the families' use ------------------------------------------------------------------

/// A layer of Llama's: the activation of field `activation` (hidden_act), scores divided by
/// sqrt(head_dim), the first rotary embedding, no window.
LayerSpec plain_layer(const Fields& fields, ModelConfig& config,
                      const char* activation = "hidden_act");

/// Appends the rotary embedding that rope_scaling, rope_parameters, rope_theta and
/// partial_rotary_factor ask for.
void add_rope(const Fields& fields, ModelConfig& config, double usual_theta = 10000.0);
/// Appends the one that `settings` asks for, an object like rope_parameters.
void add_rope(const Fields& settings, const Fields& fields, ModelConfig& config, double theta);

/// The layers that look back over a window only: those that layer_types says are sliding, or,
/// without that field, those for which `usual` is true. Layers of other types are unsupported.
std::vector<bool> windowed_layers(const Fields& fields, ModelConfig& config,
                                  const std::function<bool(std::int32_t layer)>& usual);
/// Gives those layers the window of field sliding_window. One as long as the context is none.
void set_windows(const Fields& fields, const std::vector<bool>& windowed, ModelConfig& config);
/// In a family whose layers are alike: all of them or none. Other layer_types are unsupported.
void set_windows(const Fields& fields, bool windowed, ModelConfig& config);

/// Qwen's: with use_sliding_window, all layers from max_window_layers on have windows.
void set_windows_of_qwen(const Fields& fields, ModelConfig& config);

/// A layer of Gemma 2 and 3, and what else the two share: norms, scores divided by
/// sqrt(query_pre_attn_scalar), soft caps, scaled embeddings.
LayerSpec gemma_layer(const Fields& fields, ModelConfig& config);

}  // namespace coppice
