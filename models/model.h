// A model of any family (models/families): weights on a device and its forward pass, written once.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "kernels/device.h"
#include "kernels/pass_epilogue.h"
#include "kernels/rank_meeting.h"
#include "models/config.h"
#include "models/kv/kv_pool.h"
#include "models/shard.h"

namespace coppice {

/// Called now and then while weights load, with a fraction in [0, 1].
using LoadProgress = std::function<void(double fraction)>;

struct ModelOptions {
  std::int32_t max_rows = 256;      ///< most rows of one forward pass
  std::int32_t max_logit_rows = 0;  ///< most rows with logits; 0: as many as max_rows
  /// Positions that can be run (each costs head_dim f32 of every rotary table); 0: the model's
  /// context, at most 8192. LongRoPE's factors follow it (rope_table.h).
  std::int32_t max_positions = 0;
  /// KV tokens of a pass's segments, in all; 0: those of one text, max_positions + max_rows.
  std::int32_t max_kv_tokens = 0;
  bool check_finite = true;  ///< refuse weights with NaN or infinity
  /// What matrices in 16 or 32 bits are rounded to (models/requantised.h); nullopt: kept.
  std::optional<WeightFormat> rounding = std::nullopt;
  /// Layers whose weights are on the device for good, spread evenly; the others lie in host memory
  /// and visit it (WeightStream). -1, or as many as there are: all.
  std::int32_t resident_layers = -1;
  std::int32_t stream_places = 2;  ///< layers that the device has room for of those
  /// On a device that shares the host's memory: where those others lie in a file, because memory
  /// does not hold them. Empty: in memory.
  std::filesystem::path stream_folder = {};
  /// Longest that ranks of a split model wait for each other, and that a pass of one may take.
  std::chrono::milliseconds rank_patience = usual_patience;
  /// What of the model there is. A part by itself says how much memory it takes; only together
  /// with the others can it be run (Model::load over several devices).
  Shard shard = {};
};

/// Rows of one forward pass over one pool: row r embeds tokens[r], is rotated by positions[r],
/// writes its key and value to write_slots[r], and attends to the segments whose interval holds r
/// (a row's own slot must be among what it sees). Logits are wanted of logit_rows.
using ForwardBatch = PassInputs;

class Model {
 public:
  /// Loads DIR (config.json, model.safetensors or its shards). Weights are read and
  /// packed one by one; afterwards the files may change. Throws Error(failure): a file missing,
  /// corrupt, truncated, a shape that disagrees with the config, NaN weights, an architecture
  /// that coppice cannot run, too little memory.
  static std::unique_ptr<Model> load(const std::filesystem::path& dir, Device& device,
                                     const ModelOptions& options = {},
                                     const LoadProgress& progress = {});
  /// The same, split over the devices, all of one kind, a rank on each; one of them has all of it.
  /// Throws also Error(usage) for a model that cannot be split so (slice_of), and Error(failure) if
  /// the devices cannot be connected. Passes that fail on one rank fail on all of them, and then
  /// the model cannot be used any more.
  static std::unique_ptr<Model> load(const std::filesystem::path& dir,
                                     std::span<Device* const> devices,
                                     const ModelOptions& options = {},
                                     const LoadProgress& progress = {});
  /// Tells the device which products a model's passes will compute, so that it prepares for them
  /// while weights are read (Device::expect_products). Does nothing for a folder that load() would
  /// refuse.
  static void announce(const std::filesystem::path& dir, Device& device,
                       const ModelOptions& options);
  virtual ~Model() = default;

  virtual const ModelConfig& config() const = 0;
  virtual Device& device() const = 0;  ///< where logits are
  /// By rank, device() the first: one unless the model is split.
  virtual std::vector<Device*> devices() const { return {&device()}; }
  /// That it is split over, those in other processes too.
  virtual int ranks() const { return static_cast<int>(devices().size()); }
  virtual const ModelOptions& options() const = 0;
  /// Positions 0 to max_positions() - 1 can be run.
  virtual std::int32_t max_positions() const { return config().context_length; }
  /// Bytes of packed weights that a pass with logits reads: all but the embedding table, of which
  /// it gathers a row per token. A table that is also the head's counts, as the head. Of all ranks.
  virtual std::size_t weight_bytes_read() const = 0;
  /// Bytes of each layer's matrices, as a WeightStream moves them; of one rank.
  virtual std::span<const std::size_t> layer_blocks() const { return {}; }
  /// Bytes that every pass copies to the device: of the layers that are not there for good.
  virtual std::size_t streamed_bytes() const { return 0; }
  /// Formats of the matrices that are quantised, "Q4_K, Q6_K"; empty: none is.
  virtual std::string quantised_formats() const { return ""; }
  /// Whether some of them are in blocks of whole numbers.
  virtual bool has_integers() const { return false; }
  /// Layout of a pool with room for at least `slots` tokens of this model, on devices().
  virtual KvLayout kv_layout(std::int32_t slots, std::int32_t page_size) const = 0;
  /// Has ranks in other processes take their part of the pool that passes are going to use. Throws
  /// Error(failure) if one has too little memory.
  virtual void prepare_pool(const KvLayout&) {}

  /// Runs one pass and returns the logits of logit_rows, [logit_rows.size(), vocab] f32 on the
  /// device, valid until the next pass. Empty logit_rows: no head, returns nullptr. Once its
  /// like has been run it allocates nothing (but oneDNN does, in products of many rows). Throws
  /// Error(failure) for a batch beyond the capacities, a token outside the vocabulary, or a
  /// position beyond max_positions(). `epilogue` is queued behind the pass.
  virtual const float* forward(const ForwardBatch& batch, KvPool& pool,
                               PassEpilogue* epilogue = nullptr) = 0;
  /// Called when the results of passes have come, before they are used: throws Error(failure) if
  /// ranks have failed meanwhile, so that the results are none.
  virtual void confirm() {}
  /// Calls hear(why), from any thread, once the model is lost between passes, too; at once if it
  /// is. Replaces a former hear().
  virtual void on_loss(std::function<void(const std::string& why)>) {}
};

/// What a model's products are computed in: "f32", "bf16", or "int8" where activations meet
/// quantised weights as whole numbers.
std::string compute_name(const Model& model);

struct ModelDescription {
  /// What `coppice info` prints, from config and file headers alone: architecture, shapes,
  /// parameters, bytes, dtype, vocabulary, context length, and what coppice cannot run.
  std::string text;
  bool runs = false;
};

/// Throws Error(failure) for a folder without a readable config.json.
ModelDescription describe_model(const std::filesystem::path& dir, DType kv_dtype = DType::f32);

}  // namespace coppice
