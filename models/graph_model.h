// The one implementation of Model: a family's graph over the device's operations, or a rank's slice
// of it (models/shard.h).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "kernels/communicator.h"
#include "models/model.h"
#include "models/rope_table.h"
#include "models/weights.h"

namespace coppice {

class GraphModel final : public Model {
 public:
  /// `options` as Model::load() has resolved them. A rank's slice needs a communicator to be run,
  /// which outlives it. Throws as load_weights() and slice_of().
  GraphModel(ModelConfig config, const StoredWeights& stored, Device& device,
             const ModelOptions& options, const LoadProgress& progress,
             Communicator* communicator = nullptr);

  /// Bytes of device memory for one pass, rotary tables not counted.
  static std::size_t workspace_bytes(const ModelConfig& config, const ModelSlice& slice,
                                     const ModelOptions& options, const Device& device);

  const ModelConfig& config() const override { return config_; }
  Device& device() const override { return device_; }
  const ModelOptions& options() const override { return options_; }
  std::size_t weight_bytes_read() const override { return weights_.bytes_read; }
  std::span<const std::size_t> layer_blocks() const override { return weights_.layer_blocks; }
  std::size_t streamed_bytes() const override { return weights_.streamed_bytes; }
  std::string quantised_formats() const override { return quantised_formats_; }
  bool has_integers() const override { return has_integers_; }
  std::int32_t max_positions() const override { return options_.max_positions; }
  KvLayout kv_layout(std::int32_t slots, std::int32_t page_size) const override;

  const float* forward(const ForwardBatch& batch, KvPool& pool, PassEpilogue* epilogue) override;

  /// forward() in two parts: throws for a batch that it does not take,
  void check(const ForwardBatch& batch, const KvPool& pool) const;
  /// and runs one that it takes. On ranks but the first there are no logits to return, and
  /// `epilogue` is not queued; all ranks are given the same one, so that their passes are recorded
  /// and played alike.
  const float* run(const ForwardBatch& batch, KvPool& pool, PassEpilogue* epilogue);
  /// Whether what run() last queued has ended; of a split model's rank. From any thread.
  bool has_finished() const { return pass_->has_finished(); }

 private:
  /// Device memory of one pass, [rows, width] each, rows padded as products want them. act buffers
  /// hold the device's activation type, the others f32. Widths are the slice's.
  struct Workspace {
    DeviceBuffer hidden;         ///< residual stream
    DeviceBuffer normed;         ///< act: input of a product
    DeviceBuffer qkv;            ///< q heads, k heads, v heads
    DeviceBuffer attended;       ///< act
    DeviceBuffer gate_up;        ///< gate, then up; or what a normed product adds to `hidden`
    DeviceBuffer gated;          ///< act
    DeviceBuffer kept_hidden;    ///< rows of `hidden` whose logits are wanted
    DeviceBuffer kept_attended;  ///< act: likewise of `attended`
    DeviceBuffer logits;         ///< [logit rows, vocab]; none on later ranks
    DeviceBuffer part_logits;    ///< this rank's, if there are others
    DeviceBuffer staged_logits;  ///< the others', on the first rank
  };
  struct WorkspaceSizes;

  bool is_first() const { return options_.shard.rank == 0; }
  std::int64_t q_width() const { return slice_.heads.count * config_.head_dim; }
  std::int64_t qkv_width() const {
    return (slice_.heads.count + 2 * slice_.kv_heads.count) * config_.head_dim;
  }
  const RopeTable& rope_of(const LayerSpec& layer) const {
    return layer.rope == LayerSpec::no_rope ? no_rope_
                                            : ropes_[static_cast<std::size_t>(layer.rope)];
  }
  void queue(const PassShape& shape, bool gathers, KvPool& pool, PassEpilogue* epilogue);
  void queue_logits(std::int32_t rows);
  void normalise(const float* hidden, const float* weight, std::int32_t rows);
  void add_product(const LinearWeights& weights, const void* x, const float* norm,
                   const float* next_norm, float* hidden, std::int32_t rows);
  void sum_over_ranks(float* values, std::int32_t rows);
  void keep_logit_rows();

  const ModelConfig config_;
  Device& device_;
  const ModelOptions options_;
  Communicator* const communicator_;
  const std::string quantised_formats_;
  const bool has_integers_;
  const ModelSlice slice_;
  const std::vector<std::int64_t> vocab_widths_;  ///< by rank
  const ModelWeights weights_;
  std::vector<RopeTable> ropes_;
  const RopeTable no_rope_;
  Workspace work_;
  std::unique_ptr<Pass> pass_;
};

}  // namespace coppice
