// Writes small random models as Hugging Face folders, for tests.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "base/types.h"
#include "kernels/device.h"

namespace coppice::testing {

/// Weights depend on (seed, tensor name, place in the tensor) alone: two models with the same
/// seed and shapes are equal, and one with fewer layers shares the layers it has.
struct TinyModel {
  std::string architecture = "LlamaForCausalLM";  ///< of any family that coppice runs
  std::int64_t vocab_size = 96;
  std::int64_t hidden_size = 32;
  std::int64_t intermediate_size = 56;
  std::int32_t layers = 2;
  std::int32_t heads = 4;
  std::int32_t kv_heads = 2;
  std::int32_t head_dim = 16;
  std::int32_t context_length = 256;
  double rms_norm_eps = 1e-5;
  double rope_theta = 10000.0;
  std::string rope_scaling = "null";  ///< as in config.json
  std::string fields;  ///< more of config.json, as "name": value pairs; tensors do not depend on it
  bool tie_word_embeddings = false;
  bool attention_bias = false;  ///< q, k, v and o. Qwen2 has q, k and v always
  bool mlp_bias = false;
  TokenId bos_token = 1;
  std::vector<TokenId> eos_tokens = {2};

  DType dtype = DType::f32;
  std::uint64_t seed = 1;
  /// Standard deviation of the logits, about: larger is a peakier distribution.
  double logit_scale = 1.0;
  /// Moves every weight from the one of `seed` (0) towards an independent one of `noise_seed`
  /// (1), keeping its scale: a draft whose distribution resembles its target's.
  double noise = 0.0;
  std::uint64_t noise_seed = 2;
  std::int32_t shards = 1;  ///< above 1: so many files and an index
  /// Bytes of padding in the header that leave the data unaligned (0 to 7).
  int header_padding = 0;
};

/// Small models of every family that is no Llama, with the options that matter, by name: windows of
/// a few tokens, so that they are felt.
std::map<std::string, TinyModel> tiny_families();

/// A folder below the system's temporary one that is removed with this object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

/// One tensor to write.
struct TensorToWrite {
  std::string name;
  std::string dtype;
  std::vector<std::uint64_t> shape;
  std::string bytes;
};

/// Writes DIR (made if need be) with config.json and weights.
void write_tiny_model(const std::filesystem::path& dir, const TinyModel& model);

/// The weights of `model`, as written.
std::vector<TensorToWrite> tiny_model_tensors(const TinyModel& model);
std::string tiny_model_config(const TinyModel& model);

/// Bytes of a safetensors file that holds `tensors` in their order.
std::string safetensors_bytes(const std::vector<TensorToWrite>& tensors, int header_padding = 0);
/// An 8-byte length, then `header`, then `data`.
std::string safetensors_bytes(const std::string& header, const std::string& data);

void write_file(const std::filesystem::path& path, const std::string& bytes);

/// Rounds to `dtype` and back, nearest even.
float rounded_to(float value, DType dtype);

}  // namespace coppice::testing
