#include "engine/loading.h"

#include <algorithm>

#include "base/error.h"
#include "engine/cpu_type.h"

namespace coppice {
namespace {

/// Rows of a prompt's passes. On a GPU products of fewer do not reach the matrix units' rate.
std::int32_t prefill_rows(const Device& device) { return device.shares_host_memory() ? 256 : 1024; }
/// Rows at the end of a prompt that the draft's fit to it is judged by.
constexpr std::int32_t scored_rows = 16;

// All device options are checked, also those of a device that is not chosen.
CpuOptions checked_cpu_options(const EngineOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    throw_usage(cat("threads ", options.threads, ": use 1 to 1024, or 0 for all"));
  }
  CpuOptions cpu;
  cpu.threads = options.threads;
  cpu.compute = cpu_type(options.cpu_dtype);
  cpu.kv = asked_kv_type(options.kv_dtype).value_or(DType::f32);
  return cpu;
}

}  // namespace

std::unique_ptr<Device> make_engine_device(const EngineOptions& options) {
  if (!(options.gpu_memory_fraction > 0.0 && options.gpu_memory_fraction <= 1.0)) {
    throw_usage(cat("gpu-memory-fraction ", options.gpu_memory_fraction,
                    ": use a number above 0, up to 1"));
  }
  const CpuOptions cpu = checked_cpu_options(options);
  if (options.device == DeviceKind::cuda ||
      (options.device == DeviceKind::automatic && has_cuda_device())) {
    auto device = make_cuda_device({.memory_fraction = options.gpu_memory_fraction});
    require_kv_type(options.kv_dtype, *device);
    return device;
  }
  return make_cpu_device(cpu);
}

std::int32_t tree_rows(const EngineOptions& options) { return options.max_tree_size + 1; }

std::unique_ptr<Model> load_model(const std::filesystem::path& dir, const char* what,
                                  const EngineOptions& options, Device& device) {
  ModelOptions model_options;
  model_options.max_rows = std::max(prefill_rows(device), tree_rows(options));
  model_options.max_logit_rows = std::max(scored_rows, tree_rows(options));
  // A text may be as long as the KV memory; up to 8192 tokens the rotary tables cost nothing.
  model_options.max_positions = options.kv_tokens > 8192 ? options.kv_tokens : 0;
  return Model::load(dir, device, model_options, [&](double fraction) {
    if (options.progress) options.progress({what, fraction});
  });
}

std::int64_t kv_bytes_per_token(const ModelConfig& config, DType kv_dtype) {
  return std::int64_t{2} * config.layers * config.kv_heads * config.head_dim *
         static_cast<std::int64_t>(size_of(kv_dtype));
}

std::int32_t wanted_kv_tokens(const ModelConfig& config, const EngineOptions& options,
                              DType kv_dtype) {
  if (options.kv_tokens > 0) return options.kv_tokens;
  constexpr std::int64_t no_matter_bytes = std::int64_t{1} << 28;
  const std::int64_t one = std::min<std::int64_t>(config.context_length, 8192) + tree_rows(options);
  return static_cast<std::int32_t>(
      std::clamp(no_matter_bytes / kv_bytes_per_token(config, kv_dtype), one, 4 * one));
}

std::unique_ptr<KvPool> make_pool(Device& device, const Model& model, std::int32_t kv_tokens) {
  return std::make_unique<KvPool>(device, model.kv_layout(kv_tokens, kv_page_size));
}

std::unique_ptr<DeviceSampler> make_sampler(Device& device, const Model& target, const Model* draft,
                                            const EngineOptions& options) {
  SamplerLimits limits;
  limits.target_vocab = target.config().vocab_size;
  limits.draft_vocab = draft == nullptr ? 0 : draft->config().vocab_size;
  limits.rows = std::max(scored_rows, tree_rows(options));
  limits.store_rows = tree_rows(options);
  return device.make_sampler(limits);
}

}  // namespace coppice
