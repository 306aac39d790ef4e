// What `coppice info --format json` prints.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "coppice.h"
#include "engine/memory_plan.h"
#include "kernels/device.h"

namespace coppice::cli {

/// Parts of the host's memory, but for the passes' smaller scratch space.
struct HostMemory {
  std::int64_t target_weights = 0, draft_weights = 0, kv = 0, rotary = 0, logits = 0;  ///< bytes
  std::int64_t available = 0;
  KvTokens kv_tokens;
  std::int32_t sequences = 1, batch_rows = 0;
  LayerPlacement target_layers;  ///< where some lie in a file, or are copied from memory
  std::filesystem::path folder;  ///< that the file is in
  std::int64_t folder_free = 0;  ///< bytes

  std::int64_t bytes() const { return target_weights + draft_weights + kv + rotary + logits; }
};
/// Throws Error(failure) if the KV memory does not fit, or the layers' file its disk.
HostMemory plan_host_memory(const EngineOptions& options, const Device& device);

/// Why the options' draft cannot help their target, which can be run: the end of a sentence that
/// the draft begins; "" if it can.
std::string pair_problem(const EngineOptions& options);

nlohmann::ordered_json machine_json();
/// Describes a model folder; one that cannot be read, too: why.
nlohmann::ordered_json model_json(const std::filesystem::path& dir, DType kv_dtype);
nlohmann::ordered_json to_json(const HostMemory& memory);
nlohmann::ordered_json to_json(const MemoryPlan& plan);

}  // namespace coppice::cli
