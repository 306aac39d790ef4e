// What a pair of models will take of a device's memory, before any of it is taken.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "coppice.h"
#include "kernels/device.h"
#include "models/config.h"

namespace coppice {

struct PairFiles;

/// KV tokens of the two pools. Both hold the same sequences.
struct KvTokens {
  std::int32_t target = 0;
  std::int32_t draft = 0;
};

struct MemoryPlan {
  std::string device;
  std::vector<MemoryUse> uses;  ///< weights, workspace, KV and the rest, by purpose
  std::size_t bytes = 0;        ///< their sum
  DeviceMemory memory;
  KvTokens kv;
  std::int32_t sequences = 1;      ///< sequences that are written side by side
  std::int32_t batch_rows = 0;     ///< rows that a pass of the target judges, settled
  std::int32_t max_tree_size = 0;  ///< settled
  LayerPlacement target_layers, draft_layers;
  int ranks = 1, draft_ranks = 1;  ///< that the models are split over; `uses` are the first one's
  int ranks_on_device = 1;         ///< that share the device; `memory` is the part of one
};

/// Plans the memory of `options` on a device with memory of its own. Where kv_tokens is
/// automatic, it is what max_sequences ask for, less where the card holds less; so is
/// max_batch_rows, where even one context's KV does not fit beside it. Where gpu_layers is
/// automatic and not even a short text's does, layers of the target go to the host: as few as make
/// room for one context. Throws Error(failure) with the arithmetic where the card or the host is
/// too small or too full.
///
/// `others` is the memory of the other devices that the models are split over: each must have room
/// for what the first one, which has most, takes. Ranks that share the first have equal parts of
/// it.
MemoryPlan plan_memory(const EngineOptions& options, const PairFiles& files, const Device& device,
                       std::span<const DeviceMemory> others = {});
/// Of the devices but the first.
std::vector<DeviceMemory> memory_of_others(std::span<const Device* const> devices);

/// Returns what an engine of such options takes of the host's memory beside its weights.
using BytesBeside = std::function<std::int64_t(const EngineOptions&)>;

/// Settles where the layers of a target lie whose device shares the host's memory: if the weights
/// of both models take more than host_memory, or more than `bytes_beside` leave of what is free,
/// then gpu_layers is how many stay in memory, as many as fit beside KV and passes, and host_memory
/// what weights may take; the other layers are to lie in a file, and trees may have
/// streamed_tree_size if there is room. gpu_layers that are given stay. Throws Error(failure) where
/// even so too little is free, or where layers that are given to stay take more than a given
/// host_memory.
void plan_host_layers(EngineOptions& options, const PairFiles& files, DType compute_dtype,
                      std::int64_t available_bytes, const BytesBeside& bytes_beside = {});

/// Returns what an engine takes of `available_bytes` of the host's memory beside its weights, at
/// the least: the passes' workspace, a short text's KV, and what generations and the system take.
std::int64_t bytes_beside_weights(const EngineOptions& options, const PairFiles& files,
                                  const Device& device, std::int64_t available_bytes);
/// plan_host_layers() beside that.
void plan_host_layers(EngineOptions& options, const PairFiles& files, const Device& device,
                      std::int64_t available_bytes);

/// max_batch_rows in the host's memory, settled: if automatic, so that logits take no more than a
/// sixteenth of `available_bytes`, or a tree's rows. Throws as read_config().
std::int32_t plan_host_rows(const EngineOptions& options, std::int64_t available_bytes);

/// KV tokens of pools in the host's memory, of which `available_bytes` are left beside the models.
/// `draft` may be null. Where kv_tokens is automatic, many sequences get a quarter of what is left,
/// or one sequence's KV, and that is less if memory is short. Throws Error(failure) if even so it
/// does not fit.
KvTokens plan_host_kv(const EngineOptions& options, const ModelConfig& target,
                      const ModelConfig* draft, DType dtype, std::int64_t available_bytes);

/// "up to 64 texts, 512 rows judged in a pass".
std::string describe_batch(std::int32_t sequences, std::int32_t batch_rows);

/// The plan as `coppice info` prints it.
std::string describe(const MemoryPlan& plan);

}  // namespace coppice
