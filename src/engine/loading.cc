#include "engine/loading.h"

#include <algorithm>

#include "base/error.h"
#include "engine/check_speculation.h"
#include "engine/cpu_type.h"
#include "models/kv/pass_layout.h"
#include "models/rope_table.h"
#include "sizing/cost_cache.h"

namespace coppice {
namespace {

/// Rows of a prompt's passes. On a GPU products of fewer do not reach the matrix units' rate.
std::int32_t prefill_rows(const Device& device) { return device.shares_host_memory() ? 256 : 1024; }
/// Rows at the end of a prompt that the draft's likelihood of the prompt is measured over.
constexpr std::int32_t scored_rows = 16;
/// Rows of a target pass over many sequences: from about here on a GPU's matrix units are the
/// limit, and a further row costs what it would cost in a pass of its own.
constexpr std::int32_t usual_batch_rows = 512;
/// Tokens that each of many sequences is given room for; longer ones take others' room.
constexpr std::int32_t usual_length = 2048;
/// Longest context that there is room for without being asked.
constexpr std::int32_t usual_context = 8192;

constexpr std::int32_t most_batch_rows = 2048;

// Returns the rows of the draft's passes. Sequences' trees together seldom have more nodes of one
// depth than half of what they may have in all; if they have, there is another pass.
std::int32_t draft_rows(const EngineOptions& options) {
  return std::max({scored_rows, tree_rows(options), batch_rows(options) / 2});
}

// All device options are checked, also those of a device that is not chosen.
CpuOptions checked_cpu_options(const EngineOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    throw_usage(cat("threads ", options.threads, ": use 1 to 1024, or 0 for all"));
  }
  CpuOptions cpu;
  cpu.threads = options.threads;
  cpu.compute = cpu_type(options.cpu_dtype);
  cpu.integer_products = options.cpu_dtype == CpuDtype::automatic;
  cpu.kv = asked_kv_type(options.kv_dtype).value_or(DType::f32);
  return cpu;
}

const std::filesystem::path& folder_of(const EngineOptions& options, ModelRole role) {
  return role == ModelRole::target ? options.target : options.draft;
}

// Not the folder of temporary files, which may be memory.
std::filesystem::path layers_folder() {
  const std::filesystem::path cache = cost_cache_folder();
  return cache.empty() ? std::filesystem::temp_directory_path() : cache;
}

ModelOptions limits_of(const EngineOptions& options, ModelRole role, const Device& device) {
  const bool is_target = role == ModelRole::target;
  ModelOptions limits;
  limits.rounding = rounding_of(options, role);
  // Parts of prompts share passes with trees.
  limits.max_rows = std::max(prefill_rows(device), batch_rows(options));
  limits.resident_layers = is_target ? options.gpu_layers : options.draft_gpu_layers;
  if (is_target && device.shares_host_memory() && options.host_memory > 0) {
    limits.stream_folder = layers_folder();
  }
  limits.max_logit_rows = is_target ? batch_rows(options) : draft_rows(options);
  const ModelConfig config = read_config(folder_of(options, role));
  limits.max_positions = loaded_positions(config, options);
  if (options.max_sequences > 1 && config.unsupported.empty()) {
    // A pass may see the whole pool, and of one sequence no less than if it were alone.
    const std::int32_t pool = wanted_kv_tokens(config, options, device.kv_dtype()) + kv_page_size;
    limits.max_kv_tokens =
        static_cast<std::int32_t>(std::max(PassLayout::most_listed(pool, options.max_sequences),
                                           std::int64_t{limits.max_positions} + limits.max_rows));
  }
  return limits;
}

void check_layers(const EngineOptions& options) {
  for (const std::int32_t layers : {options.gpu_layers, options.draft_gpu_layers}) {
    if (layers >= -1) continue;
    throw_usage(cat("gpu_layers ", layers, ": use 0 or more, or -1 for automatic"));
  }
}

}  // namespace

std::optional<WeightFormat> rounding_of(const EngineOptions& options, ModelRole role) {
  switch (role == ModelRole::target ? options.target_weights : options.draft_weights) {
    case WeightRounding::q8_0:
      return WeightFormat::q8_0;
    case WeightRounding::q6_k:
      return WeightFormat::q6_k;
    case WeightRounding::q4_k:
      return WeightFormat::q4_k;
    case WeightRounding::q4_0:
      return WeightFormat::q4_0;
    case WeightRounding::fp8:
      return WeightFormat::fp8;
    case WeightRounding::int4:
      return WeightFormat::int4;
    case WeightRounding::keep:
      break;
  }
  return std::nullopt;
}

std::unique_ptr<Device> make_engine_device(const EngineOptions& options) {
  if (!(options.gpu_memory_fraction > 0.0 && options.gpu_memory_fraction <= 1.0)) {
    throw_usage(cat("gpu-memory-fraction ", options.gpu_memory_fraction,
                    ": use a number above 0, up to 1"));
  }
  const CpuOptions cpu = checked_cpu_options(options);
  if (options.device == DeviceKind::cuda ||
      (options.device == DeviceKind::automatic && has_cuda_device())) {
    auto device = make_cuda_device(
        {.memory_fraction = options.gpu_memory_fraction, .memory_limit = options.gpu_memory});
    require_kv_type(options.kv_dtype, *device);
    return device;
  }
  return make_cpu_device(cpu);
}

void check_capacities(const EngineOptions& options) {
  constexpr std::int32_t most_kv_tokens = 1 << 30;  // sums with rows and pages stay in range
  if (options.kv_tokens < 0 || options.kv_tokens > most_kv_tokens) {
    throw_usage(cat("kv_tokens ", options.kv_tokens, ": use 1 to ", most_kv_tokens,
                    ", or 0 for automatic"));
  }
  if (options.max_tree_size < 1 || options.max_tree_size > largest_tree_size) {
    throw_usage(cat("max_tree_size ", options.max_tree_size, ": use 1 to ", largest_tree_size));
  }
  if (options.streamed_tree_size < 0 || options.streamed_tree_size > largest_tree_size) {
    throw_usage(
        cat("streamed_tree_size ", options.streamed_tree_size, ": use 0 to ", largest_tree_size));
  }
  check_layers(options);
  if (options.max_sequences < 1 || options.max_sequences > most_sequences) {
    throw_usage(cat("max_sequences ", options.max_sequences, ": use 1 to ", most_sequences,
                    "; further texts wait until one ends"));
  }
  if (options.max_batch_rows < 0 || options.max_batch_rows > most_batch_rows) {
    throw_usage(cat("max_batch_rows ", options.max_batch_rows, ": use 1 to ", most_batch_rows,
                    ", or 0 for automatic"));
  }
}

void require_roundings(const EngineOptions& options) {
  if (options.target_weights != WeightRounding::keep) {
    require_roundable(options.target, cat("target_weights ", name_of(options.target_weights)));
  }
  if (options.draft_weights != WeightRounding::keep && !options.draft.empty()) {
    require_roundable(options.draft, cat("draft_weights ", name_of(options.draft_weights)));
  }
}

std::int32_t tree_rows(const EngineOptions& options) { return options.max_tree_size + 1; }

std::int32_t batch_rows(const EngineOptions& options) {
  const std::int32_t usual = options.max_sequences > 1 ? usual_batch_rows : 0;
  return std::max({scored_rows, tree_rows(options),
                   options.max_batch_rows > 0 ? options.max_batch_rows : usual});
}

std::int64_t logit_bytes(const EngineOptions& options, const ModelConfig& target,
                         const ModelConfig* draft) {
  std::int64_t numbers = batch_rows(options) * target.vocab_size;
  if (draft != nullptr) {
    numbers += draft_rows(options) * draft->vocab_size + batch_rows(options) * target.vocab_size;
  }
  return numbers * static_cast<std::int64_t>(sizeof(float));
}

void announce_models(const EngineOptions& options, Device& device) {
  Model::announce(options.target, device, limits_of(options, ModelRole::target, device));
  if (options.draft.empty()) return;
  Model::announce(options.draft, device, limits_of(options, ModelRole::draft, device));
}

PairFiles::PairFiles(const EngineOptions& options)
    : target(options.target, rounding_of(options, ModelRole::target)) {
  if (!options.draft.empty()) {
    draft.emplace(options.draft, rounding_of(options, ModelRole::draft));
  }
}

std::unique_ptr<Model> load_model(const EngineOptions& options, const PairFiles& files,
                                  ModelRole role, Device& device) {
  const bool is_target = role == ModelRole::target;
  return load_opened(is_target ? files.target : *files.draft, device,
                     limits_of(options, role, device), [&](double fraction) {
                       if (!options.progress) return;
                       options.progress({is_target ? "target" : "draft", fraction});
                     });
}

std::int32_t loaded_positions(const ModelConfig& config, const EngineOptions& options) {
  const bool stretches =
      std::any_of(config.ropes.begin(), config.ropes.end(),
                  [](const RopeSpec& rope) { return rope.kind == RopeSpec::Kind::longrope; });
  // Up to 8192 positions the tables cost nothing.
  const std::int32_t wanted = stretches && options.kv_tokens > 0
                                  ? options.kv_tokens
                                  : std::max(options.kv_tokens, usual_context);
  return std::min(wanted, config.context_length);
}

std::int64_t rope_bytes(const ModelConfig& config, const EngineOptions& options) {
  std::int64_t bytes = 0;
  for (const RopeSpec& rope : config.ropes) {
    bytes += static_cast<std::int64_t>(rope_table_bytes(rope, loaded_positions(config, options)));
  }
  return bytes;
}

std::int64_t kv_bytes_per_token(const ModelConfig& config, DType kv_dtype) {
  return std::int64_t{2} * config.layers * config.kv_heads * config.head_dim *
         static_cast<std::int64_t>(size_of(kv_dtype));
}

std::int32_t one_sequence_kv_tokens(const ModelConfig& config, const EngineOptions& options,
                                    DType kv_dtype) {
  if (options.kv_tokens > 0) return options.kv_tokens;
  constexpr std::int64_t no_matter_bytes = std::int64_t{1} << 28;
  const std::int64_t one =
      std::int64_t{std::min(config.context_length, usual_context)} + tree_rows(options);
  return static_cast<std::int32_t>(
      std::clamp(no_matter_bytes / kv_bytes_per_token(config, kv_dtype), one, 4 * one));
}

std::int32_t wanted_kv_tokens(const ModelConfig& config, const EngineOptions& options,
                              DType kv_dtype) {
  const std::int32_t one = one_sequence_kv_tokens(config, options, kv_dtype);
  if (options.kv_tokens > 0 || options.max_sequences == 1) return one;
  return std::max(one, options.max_sequences * std::min(config.context_length, usual_length) +
                           batch_rows(options));
}

std::unique_ptr<KvPool> make_pool(Device& device, const Model& model, std::int32_t kv_tokens) {
  return std::make_unique<KvPool>(device, model.kv_layout(kv_tokens, kv_page_size));
}

std::unique_ptr<DeviceSampler> make_sampler(Device& device, const Model& target, const Model* draft,
                                            const EngineOptions& options) {
  SamplerLimits limits;
  limits.target_vocab = target.config().vocab_size;
  limits.draft_vocab = draft == nullptr ? 0 : draft->config().vocab_size;
  limits.rows = batch_rows(options);
  limits.store_rows = batch_rows(options);
  limits.texts = options.max_sequences;
  return device.make_sampler(limits);
}

}  // namespace coppice
