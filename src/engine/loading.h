// Building an engine's models on a device, for use or for planning.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "coppice.h"
#include "kernels/device.h"
#include "kernels/device_sampler.h"
#include "models/model.h"
#include "models/model_folder.h"

namespace coppice {

class RemoteRanks;
struct RankDevice;

/// Tokens of a KV pool's page.
inline constexpr std::int32_t kv_page_size = 16;
/// Most that max_sequences may be.
inline constexpr std::int32_t most_sequences = 1024;

enum class ModelRole { target, draft };

/// The files of the options' models, open for planning and for loading. Throws as ModelFiles.
struct PairFiles {
  explicit PairFiles(const EngineOptions& options);
  /// `draft` is there if it is asked for.
  const ModelFiles& of(ModelRole role) const { return role == ModelRole::target ? target : *draft; }

  const ModelFiles target;
  std::optional<const ModelFiles> draft;
};

/// The device that the options ask for, the first if there are several. Throws Error(usage) for a
/// missing one.
std::unique_ptr<Device> make_engine_device(const EngineOptions& options);
/// The others of those that models are split over, `first` being what make_engine_device() made.
/// Throws likewise.
std::vector<std::unique_ptr<Device>> make_further_devices(const EngineOptions& options,
                                                          const Device& first);

/// Throws Error(usage) for numbers of a device's options that no device takes.
void check_device_limits(const EngineOptions& options);

/// The device of a rank in this process, of the kind that rank 0 asks for. Throws Error(failure)
/// where there is none.
std::unique_ptr<Device> make_rank_device(const EngineOptions& options, const RankDevice& asked);

/// Ranks that are on the first GPU: more than 1 where one is listed several times.
int ranks_on_first_gpu(const EngineOptions& options);
std::chrono::milliseconds rank_patience(const EngineOptions& options);
/// Where layers lie that memory does not hold.
std::filesystem::path layers_folder();

/// By rank.
std::vector<Device*> devices_by_rank(Device& first,
                                     const std::vector<std::unique_ptr<Device>>& further);

/// Settles tensor_parallel where it is automatic: on the CPU 1, else as many of the GPUs as the
/// target can be split over. Throws Error(usage) for a number that there are no GPUs for, or that a
/// model cannot be split by.
void settle_ranks(EngineOptions& options, const PairFiles& pair, const Device& device);

/// Throws Error(usage) for sizes and counts out of range.
void check_capacities(const EngineOptions& options);

/// Throws Error(usage) where a model that is stored quantised is to be rounded.
void require_roundings(const EngineOptions& options);

/// What its matrices are rounded to; nullopt: kept.
std::optional<WeightFormat> rounding_of(const EngineOptions& options, ModelRole role);

/// Tells the device what load_model() is going to load (Model::announce). Throws as it does, if a
/// config cannot be read.
void announce_models(const EngineOptions& options, Device& device);
/// The options' target or draft, with room for passes of batch_rows(options) that all sequences
/// share; over as many of the devices as it is to be split over.
std::unique_ptr<Model> load_model(const EngineOptions& options, const PairFiles& files,
                                  ModelRole role, std::span<Device* const> devices);
/// The target, as rank 0 of those in other processes.
std::unique_ptr<Model> load_target(const EngineOptions& options, const PairFiles& files,
                                   Device& device, std::unique_ptr<RemoteRanks> others);
/// The first rank's part of it, on a device that plans.
std::unique_ptr<Model> plan_model(const EngineOptions& options, const PairFiles& files,
                                  ModelRole role, Device& planner);

/// KV slots that the options ask for, or by default as many as max_sequences of up to 2048
/// tokens and their trees take; at least one_sequence_kv_tokens().
std::int32_t wanted_kv_tokens(const ModelConfig& config, const EngineOptions& options,
                              DType kv_dtype);
/// The same of one sequence: by default a few whole contexts where memory is no matter, at least
/// one context, of at most 8192 tokens, and a tree else.
std::int32_t one_sequence_kv_tokens(const ModelConfig& config, const EngineOptions& options,
                                    DType kv_dtype);
std::unique_ptr<KvPool> make_pool(Model& model, std::int32_t kv_tokens);

/// Bytes of one token's keys and values in all layers.
std::int64_t kv_bytes_per_token(const ModelConfig& config, DType kv_dtype);

/// Bytes that the passes of an engine's models take of the host's memory beside weights and KV: all
/// ranks' workspace, and rotary tables.
std::int64_t host_workspace_bytes(const EngineOptions& options, const PairFiles& files,
                                  const Device& device);

/// Positions that a model is loaded for: its context, of up to 8192 tokens or, if that is more,
/// kv_tokens. LongRoPE's factors go by the length: there kv_tokens may also make it less.
std::int32_t loaded_positions(const ModelConfig& config, const EngineOptions& options);
/// Bytes of its rotary tables.
std::int64_t rope_bytes(const ModelConfig& config, const EngineOptions& options);

/// Rows that a tree of options.max_tree_size needs with its root.
std::int32_t tree_rows(const EngineOptions& options);
/// Rows that a pass of the target judges at most, of all sequences' trees; by default a tree's
/// where there is one sequence, else 512 if that is more; at least those that a prompt's end is
/// scored by. As many distributions of the draft are kept.
std::int32_t batch_rows(const EngineOptions& options);
/// Bytes of logits in passes of batch_rows(), of the draft's as well and of the distributions kept
/// of it if there is one (`draft` may be null).
std::int64_t logit_bytes(const EngineOptions& options, const ModelConfig& target,
                         const ModelConfig* draft);
/// nullptr where the host samples. `draft` may be null.
std::unique_ptr<DeviceSampler> make_sampler(Device& device, const Model& target, const Model* draft,
                                            const EngineOptions& options);

}  // namespace coppice
