// A model's weights: read from its files and packed for a device.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "kernels/device.h"
#include "models/config.h"
#include "models/model.h"
#include "models/shard.h"
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
  std::int32_t visit = -1;  ///< of ModelWeights::stream; -1: on the device for good

  std::array<LinearWeights*, 4> products() const {
    return {qkv.get(), output.get(), gate_up.get(), down.get()};
  }
};

struct ModelWeights {
  std::vector<LayerWeights> layers;
  const float* final_norm = nullptr;
  std::unique_ptr<LinearWeights> head;
  EmbeddingTable embedding;  ///< the head's, or embedding_copy
  float embedding_scale = 1.0f;
  DeviceBuffer embedding_copy;
  DeviceBuffer norms;
  std::unique_ptr<WeightStream> stream;   ///< null: all layers are on the device
  std::vector<std::size_t> layer_blocks;  ///< bytes of each layer in a place of the stream
  std::size_t streamed_bytes = 0;         ///< of those that visit, together
  std::size_t bytes_read = 0;             ///< packed, as Model::weight_bytes_read()
};

/// Bytes that load_weights will take of a host device for each of so many ranks, roughly: computing
/// in f32, weights keep their formats.
std::int64_t packed_bytes(const StoredWeights& stored, DType compute_dtype, int ranks = 1);

/// Likewise, of each layer.
std::vector<std::size_t> packed_layer_bytes(const StoredWeights& stored, DType compute_dtype,
                                            std::int32_t layers);

/// `stored` are those of this config, of which options.shard gets its `slice`: the sum of all
/// ranks' output and down products is the model's, biases included. max_rows and max_logit_rows are
/// the most rows of one product. Throws Error(failure) naming file and tensor: NaN, or a file that
/// changed meanwhile.
ModelWeights load_weights(const ModelConfig& config, const StoredWeights& stored,
                          const ModelSlice& slice, Device& device, const ModelOptions& options,
                          const LoadProgress& progress);

}  // namespace coppice
