// config.json and generation_config.json of a Hugging Face model folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "base/types.h"

namespace coppice {

struct RopeScaling {
  enum class Kind { none, linear, llama3 } kind = Kind::none;
  double factor = 1.0;
  double low_freq_factor = 1.0;          ///< llama3
  double high_freq_factor = 4.0;         ///< llama3
  std::int64_t original_context = 8192;  ///< llama3
};

/// Shapes and constants of a Llama-family model.
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
  std::int32_t context_length = 0;  ///< max_position_embeddings
  float rms_norm_eps = 1e-6f;
  double rope_theta = 10000.0;
  RopeScaling rope_scaling;
  bool tie_word_embeddings = false;
  bool qkv_bias = false;     ///< attention_bias, or Qwen2's always
  bool output_bias = false;  ///< attention_bias of Llama covers o_proj too
  bool mlp_bias = false;
  TokenId bos_token = -1;           ///< -1: none
  std::vector<TokenId> eos_tokens;  ///< of both files, without repetition
  /// What coppice cannot run of this model, one sentence each; empty: nothing.
  std::vector<std::string> unsupported;

  std::int64_t parameters() const;
};

/// Reads and checks DIR/config.json (and generation_config.json if there). Throws
/// Error(failure) naming file, field, value and remedy. A feature coppice cannot run is listed
/// in `unsupported`, not thrown, so that `coppice info` can describe the folder.
ModelConfig read_config(const std::filesystem::path& dir);

}  // namespace coppice
