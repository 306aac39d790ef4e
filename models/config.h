// config.json and generation_config.json of a Hugging Face model folder, or what a GGUF file says
// in their place.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"
#include "kernels/device.h"

namespace coppice {

/// One rotary embedding, as Hugging Face's rope_parameters describe it.
struct RopeSpec {
  enum class Kind { plain, linear, llama3, yarn, longrope } kind = Kind::plain;
  double theta = 10000.0;
  std::int32_t rotated = 0;       ///< elements of a head that are rotated, the first ones; even
  double factor = 1.0;            ///< linear, llama3, yarn
  double low_freq_factor = 1.0;   ///< llama3
  double high_freq_factor = 4.0;  ///< llama3
  /// llama3: what frequencies are divided by, [rotated / 2]; empty: computed from the numbers above
  std::vector<double> frequency_factors;
  std::int64_t original_context = 0;  ///< llama3, yarn, longrope
  double beta_fast = 32.0;            ///< yarn
  double beta_slow = 1.0;             ///< yarn
  bool truncate = true;               ///< yarn
  double attention_factor = 1.0;      ///< yarn, longrope: of cosines and sines
  std::vector<double> short_factors;  ///< longrope, [rotated / 2]
  std::vector<double> long_factors;   ///< longrope, [rotated / 2]
};

/// What the graph does in one layer.
struct LayerSpec {
  AttentionRule attention;
  std::int32_t rope = 0;      ///< which of ModelConfig::ropes; no_rope: positions do not count
  bool head_norms = false;    ///< RMS norms of every query and key head before rotation
  bool output_norms = false;  ///< RMS norms of what attention and FFN add to the residual stream
  Activation activation = Activation::silu;

  static constexpr std::int32_t no_rope = -1;
};

/// How a folder's matrices are packed (packed_checkpoint.h).
struct WeightPacking {
  enum class Kind { none, awq, gptq, int4, fp8 } kind = Kind::none;
  std::int64_t group = 0;  ///< inputs that share a scale; 0: a whole row
  bool zeros_less_one = false;
};

/// Shapes and constants of a model.
struct ModelConfig {
  std::string architecture;  ///< e.g. LlamaForCausalLM
  std::string model_type;
  std::int64_t vocab_size = 0;
  std::int64_t hidden_size = 0;
  std::int64_t intermediate_size = 0;
  std::int32_t layers = 0;
  std::int32_t heads = 0;
  std::int32_t kv_heads = 0;
  std::int32_t head_dim = 0;
  std::int32_t context_length = 0;  ///< max_position_embeddings, or what YaRN stretches it to
  float rms_norm_eps = 1e-6f;
  std::vector<LayerSpec> layer_specs;  ///< [layers]; empty if the architecture is unknown
  std::vector<RopeSpec> ropes;
  bool scaled_embeddings = false;    ///< times sqrt(hidden_size)
  float final_soft_cap = 0.0f;       ///< of logits; 0: none
  bool tie_word_embeddings = false;  ///< of the files, once settle_head() has seen them
  bool qkv_bias = false;
  bool output_bias = false;  ///< of o_proj
  bool mlp_bias = false;
  bool one_based_norms = false;    ///< norms are stored as w and used as 1 + w
  bool fused_projections = false;  ///< stored as qkv_proj and gate_up_proj
  WeightPacking packing;
  TokenId bos_token = -1;           ///< -1: none
  std::vector<TokenId> eos_tokens;  ///< without repetition
  /// What coppice cannot run of this model, one sentence each; empty: nothing.
  std::vector<std::string> unsupported;
};

/// Reads and checks a folder's config.json (and the ids of generation_config.json if there), or a
/// GGUF file's metadata. Throws Error(failure) naming file, field, value and remedy. A feature
/// coppice cannot run is listed in `unsupported`, not thrown, so that `coppice info` can describe
/// the model.
ModelConfig read_config(const std::filesystem::path& path);
/// The same for a description: what is wrong with the ids of special tokens is not thrown, but
/// stands in `wrong_ids`.
ModelConfig read_config(const std::filesystem::path& path, std::string& wrong_ids);

/// A tensor that a model's files must hold.
struct ParameterShape {
  std::string name;
  std::vector<std::int64_t> shape;  ///< [out, in], or [n] of a norm or a bias

  std::int64_t elements() const;
};

/// All of a model's, in the order of the graph, under the names that text models have on disk
/// (model.embed_tokens.weight, ...). A head that is tied to the embedding has none of its own.
std::vector<ParameterShape> parameter_shapes(const ModelConfig& config);
/// Returns the layer that a parameter's name speaks of; -1: none.
std::int32_t layer_of(std::string_view name);
std::int64_t parameter_count(const ModelConfig& config);

}  // namespace coppice
