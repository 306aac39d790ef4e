// What a pair of models will take of a device's memory, before any of it is taken.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coppice.h"
#include "kernels/device.h"
#include "models/config.h"

namespace coppice {

/// KV tokens of the two pools. Both hold the same texts.
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
};

/// Plans the memory of `options` on a device with memory of its own. Where kv_tokens is
/// automatic, it is what the models' contexts ask for, less where the card holds less. Throws
/// Error(failure) with the arithmetic where the card is too small or too full.
MemoryPlan plan_memory(const EngineOptions& options, const Device& device);

/// KV tokens of pools in the host's memory, of which `available_bytes` are left beside the models.
/// `draft` may be null. Where kv_tokens is automatic it is less if memory is short. Throws
/// Error(failure) if even so it does not fit.
KvTokens plan_host_kv(const EngineOptions& options, const ModelConfig& target,
                      const ModelConfig* draft, DType dtype, std::int64_t available_bytes);

/// The plan as `coppice info` prints it.
std::string describe(const MemoryPlan& plan);

}  // namespace coppice
