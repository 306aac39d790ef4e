// A model's weights: read from its files and packed for a device.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "models/config.h"
#include "models/model.h"
#include "models/stored_weights.h"

namespace coppice {

/// Norms point into ModelWeights::norms, f32 on the device: [hidden], or [head_dim] of the heads'.
/// Those that the layer does not have are nullptr.
struct LayerWeights {
  const float* attention_norm = nullptr;  ///< of what attention reads
  const float* query_norm = nullptr;
  const float* key_norm = nullptr;
  const float* attended_norm = nullptr;    ///< of what attention adds
  const float* ffn_norm = nullptr;         ///< of what the FFN reads
  const float* fed_norm = nullptr;         ///< of what the FFN adds
  std::unique_ptr<LinearWeights> qkv;      ///< q, k and v stacked
  std::unique_ptr<LinearWeights> output;   ///< o_proj
  std::unique_ptr<LinearWeights> gate_up;  ///< gate and up stacked
  std::unique_ptr<LinearWeights> down;
};

struct ModelWeights {
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;
  std::unique_ptr<LinearWeights> head;
  EmbeddingTable embedding;  ///< the head's, or embedding_copy
  float embedding_scale = 1.0f;
  DeviceBuffer embedding_copy;
  DeviceBuffer norms;
  std::size_t bytes_read = 0;  ///< packed, as Model::weight_bytes_read()
};

/// Bytes that load_weights will take of a host device, roughly: computing in f32, weights keep
/// their formats.
std::int64_t packed_bytes(const StoredWeights& stored, DType compute_dtype);

/// `stored` are those of this config. max_rows and max_logit_rows are the most rows of one product.
/// Throws Error(failure) naming file and tensor: NaN, or a file that changed meanwhile.
ModelWeights load_weights(const ModelConfig& config, const StoredWeights& stored, Device& device,
                          const ModelOptions& options, const LoadProgress& progress);

}  // namespace coppice
