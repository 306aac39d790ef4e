// Building an engine's models on a device, for use or for planning.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "coppice.h"
#include "kernels/device.h"
#include "kernels/device_sampler.h"
#include "models/model.h"

namespace coppice {

/// Tokens of a KV pool's page.
inline constexpr std::int32_t kv_page_size = 16;

/// The device that the options ask for. Throws Error(usage) for a missing one.
std::unique_ptr<Device> make_engine_device(const EngineOptions& options);

/// A model with room for trees of options.max_tree_size. `what` names it in progress events.
std::unique_ptr<Model> load_model(const std::filesystem::path& dir, const char* what,
                                  const EngineOptions& options, Device& device);

/// KV slots that the options ask for, or by default: a few whole contexts where memory is no
/// matter, at least one context and a tree else.
std::int32_t wanted_kv_tokens(const ModelConfig& config, const EngineOptions& options,
                              DType kv_dtype);
std::unique_ptr<KvPool> make_pool(Device& device, const Model& model, std::int32_t kv_tokens);

/// Bytes of one token's keys and values in all layers.
std::int64_t kv_bytes_per_token(const ModelConfig& config, DType kv_dtype);

/// Rows that a tree of options.max_tree_size needs with its root: of distributions kept, too.
std::int32_t tree_rows(const EngineOptions& options);
/// nullptr where the host samples. `draft` may be null.
std::unique_ptr<DeviceSampler> make_sampler(Device& device, const Model& target, const Model* draft,
                                            const EngineOptions& options);

}  // namespace coppice
