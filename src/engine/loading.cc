#include "engine/loading.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "engine/check_speculation.h"
#include "engine/cpu_type.h"
#include "engine/rank_process.h"
#include "kernels/cpu/workers.h"
#include "models/graph_model.h"
#include "models/kv/pass_layout.h"
#include "models/model_folder.h"
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

// Of this process.
int ranks_here(const EngineOptions& options) {
  if (!options.rank_address.empty()) return 1;
  return std::max(options.tensor_parallel, options.draft_tensor_parallel);
}

// All device options are checked, also those of a device that is not chosen.
CpuOptions checked_cpu_options(const EngineOptions& options) {
  CpuOptions cpu;
  cpu.threads = options.threads;
  // Ranks compute at the same time.
  if (const int ranks = ranks_here(options); ranks > 1) {
    const int all = options.threads > 0 ? options.threads : cpu::usable_threads();
    cpu.threads = std::max(1, all / ranks);
  }
  cpu.compute = cpu_type(options.cpu_dtype);
  cpu.integer_products = options.cpu_dtype == CpuDtype::automatic;
  cpu.kv = asked_kv_type(options.kv_dtype).value_or(DType::f32);
  return cpu;
}

const std::filesystem::path& folder_of(const EngineOptions& options, ModelRole role) {
  return role == ModelRole::target ? options.target : options.draft;
}

int ranks_of(const EngineOptions& options, ModelRole role) {
  return role == ModelRole::target ? options.tensor_parallel : options.draft_tensor_parallel;
}

ModelOptions limits_of(const EngineOptions& options, ModelRole role, const Device& device) {
  const bool is_target = role == ModelRole::target;
  ModelOptions limits;
  limits.rounding = rounding_of(options, role);
  limits.rank_patience = rank_patience(options);
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

LoadProgress progress_of(const EngineOptions& options, ModelRole role) {
  return [&options, role](double fraction) {
    if (!options.progress) return;
    options.progress({role == ModelRole::target ? "target" : "draft", fraction});
  };
}

/// Ranks that a model may be split over.
constexpr std::int32_t most_ranks = 64;

bool share_one_gpu(const EngineOptions& options) { return ranks_on_first_gpu(options) > 1; }

void check_ranks(const EngineOptions& options) {
  if (options.tensor_parallel < 0 || options.tensor_parallel > most_ranks) {
    throw_usage(cat("tensor_parallel ", options.tensor_parallel, ": use 1 to ", most_ranks,
                    ", or 0 for automatic"));
  }
  if (options.draft_tensor_parallel < 1 || options.draft_tensor_parallel > most_ranks) {
    throw_usage(
        cat("draft_tensor_parallel ", options.draft_tensor_parallel, ": use 1 to ", most_ranks));
  }
  if (share_one_gpu(options)) return;
  for (auto device = options.devices.begin(); device != options.devices.end(); ++device) {
    if (std::find(options.devices.begin(), device, *device) != device) {
      throw_usage(cat("devices: GPU ", *device,
                      " is listed twice; list each once, or one for all parts of a split model"));
    }
  }
}

CudaOptions cuda_options(const EngineOptions& options, int rank) {
  const auto at = static_cast<std::size_t>(rank);
  CudaOptions cuda;
  cuda.device = options.devices.empty() ? rank : options.devices.at(at);
  cuda.memory_fraction = options.gpu_memory_fraction;
  cuda.memory_limit = options.gpu_memory;
  if (share_one_gpu(options)) {
    // Passes of ranks that wait for each other on one GPU cannot be recorded (make_communicators).
    cuda.record = false;
    const auto ranks = static_cast<std::uint64_t>(ranks_on_first_gpu(options));
    cuda.memory_fraction /= static_cast<double>(ranks);
    cuda.memory_limit /= ranks;
  }
  return cuda;
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

// Not the folder of temporary files, which may be memory.
std::filesystem::path layers_folder() {
  const std::filesystem::path cache = cost_cache_folder();
  return cache.empty() ? std::filesystem::temp_directory_path() : cache;
}

int ranks_on_first_gpu(const EngineOptions& options) {
  const auto& devices = options.devices;
  const bool all = std::all_of(devices.begin(), devices.end(),
                               [&](std::int32_t device) { return device == devices.front(); });
  return all && !devices.empty() ? static_cast<int>(devices.size()) : 1;
}

std::chrono::milliseconds rank_patience(const EngineOptions& options) {
  return std::chrono::ceil<std::chrono::milliseconds>(
      std::chrono::duration<double>(options.rank_timeout));
}

void check_device_limits(const EngineOptions& options) {
  if (options.threads < 0 || options.threads > 1024) {
    throw_usage(cat("threads ", options.threads, ": use 1 to 1024, or 0 for all"));
  }
  if (!(options.gpu_memory_fraction > 0.0 && options.gpu_memory_fraction <= 1.0)) {
    throw_usage(cat("gpu-memory-fraction ", options.gpu_memory_fraction,
                    ": use a number above 0, up to 1"));
  }
}

std::unique_ptr<Device> make_rank_device(const EngineOptions& options, const RankDevice& asked) {
  if (asked.cuda) return make_cuda_device(cuda_options(options, 0));
  if (!options.devices.empty()) {
    throw_usage("devices: it names a GPU, and rank 0 is on a CPU; leave it out");
  }
  if (options.gpu_memory > 0) {
    throw_usage("gpu-memory: it limits a GPU's, and rank 0 is on a CPU; leave it out");
  }
  return make_cpu_device({options.threads, asked.compute, asked.integer_products, asked.kv});
}

std::unique_ptr<Device> make_engine_device(const EngineOptions& options) {
  check_device_limits(options);
  check_ranks(options);
  check_rank_options(options);
  const CpuOptions cpu = checked_cpu_options(options);
  if (options.device == DeviceKind::cuda ||
      (options.device == DeviceKind::automatic && has_cuda_device())) {
    auto device = make_cuda_device(cuda_options(options, 0));
    require_kv_type(options.kv_dtype, *device);
    return device;
  }
  if (!options.devices.empty()) {
    throw_usage("devices: it names GPUs, and the CPU is used; leave it out, or use device cuda");
  }
  return make_cpu_device(cpu);
}

std::vector<std::unique_ptr<Device>> make_further_devices(const EngineOptions& options,
                                                          const Device& first) {
  const int ranks = ranks_here(options);
  std::vector<std::unique_ptr<Device>> further;
  for (int rank = 1; rank < ranks; ++rank) {
    further.push_back(first.shares_host_memory() ? make_cpu_device(checked_cpu_options(options))
                                                 : make_cuda_device(cuda_options(options, rank)));
  }
  return further;
}

std::vector<Device*> devices_by_rank(Device& first,
                                     const std::vector<std::unique_ptr<Device>>& further) {
  std::vector<Device*> all = {&first};
  for (const auto& device : further) all.push_back(device.get());
  return all;
}

void settle_ranks(EngineOptions& options, const PairFiles& pair, const Device& device) {
  const bool on_host = device.shares_host_memory();
  const int listed = static_cast<int>(options.devices.size());
  const bool elsewhere = !options.rank_address.empty();
  const int present = on_host || elsewhere ? most_ranks : listed > 0 ? listed : cuda_device_count();
  const auto require_devices = [&](const char* option, int ranks) {
    if (ranks <= present) return;
    throw_usage(cat(option, " ", ranks, ": ", present, present == 1 ? " GPU is" : " GPUs are",
                    listed > 0 ? " listed (devices)" : " visible", "; use at most ", present));
  };
  if (options.tensor_parallel != 0) {
    const int used = std::max(options.tensor_parallel, options.draft_tensor_parallel);
    if (listed > used) {
      throw_usage(cat("devices: ", listed, " GPUs are listed, and models are split over ", used,
                      "; list as many, or use another tensor_parallel"));
    }
  }
  const auto require_split = [&](ModelRole role, int ranks) {
    const ModelFiles& files = pair.of(role);
    (void)slice_of(files.config, borders_of(files.config, files.weights), {0, ranks},
                   role == ModelRole::draft);
  };
  if (options.tensor_parallel == 0) {
    const auto can_split = [&](int ranks) {
      try {
        require_split(ModelRole::target, ranks);
        return true;
      } catch (const Error& error) {
        if (error.kind() != ErrorKind::usage) throw;
        return false;
      }
    };
    options.tensor_parallel = on_host ? 1 : present;
    while (options.tensor_parallel > 1 && !can_split(options.tensor_parallel)) {
      --options.tensor_parallel;
    }
  }
  require_devices("tensor_parallel", options.tensor_parallel);
  require_devices("draft_tensor_parallel", options.draft_tensor_parallel);
  if (options.tensor_parallel > 1) require_split(ModelRole::target, options.tensor_parallel);
  if (options.draft_tensor_parallel > 1 && !options.draft.empty()) {
    require_split(ModelRole::draft, options.draft_tensor_parallel);
  }
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
                                  ModelRole role, std::span<Device* const> devices) {
  const auto ranks = static_cast<std::size_t>(ranks_of(options, role));
  return load_opened(files.of(role), devices.first(ranks),
                     limits_of(options, role, *devices.front()), progress_of(options, role));
}

std::unique_ptr<Model> load_target(const EngineOptions& options, const PairFiles& files,
                                   Device& device, std::unique_ptr<RemoteRanks> others) {
  return load_leading(files.target, device, std::move(others),
                      limits_of(options, ModelRole::target, device),
                      progress_of(options, ModelRole::target));
}

std::unique_ptr<Model> plan_model(const EngineOptions& options, const PairFiles& files,
                                  ModelRole role, Device& planner) {
  ModelOptions limits = limits_of(options, role, planner);
  limits.shard.ranks = ranks_of(options, role);
  return load_opened(files.of(role), std::array<Device*, 1>{&planner}, limits, {});
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

std::int64_t host_workspace_bytes(const EngineOptions& options, const PairFiles& files,
                                  const Device& device) {
  const auto of = [&](ModelRole role) {
    const ModelFiles& model = files.of(role);
    ModelOptions limits = limits_of(options, role, device);
    limits.shard.ranks = ranks_of(options, role);
    // As Model::load() does it.
    if (limits.max_kv_tokens == 0) limits.max_kv_tokens = limits.max_positions + limits.max_rows;
    const ModelSlice slice =
        slice_of(model.config, borders_of(model.config, model.weights), limits.shard);
    const std::size_t bytes = GraphModel::workspace_bytes(model.config, slice, limits, device);
    return static_cast<std::int64_t>(bytes) * limits.shard.ranks +
           rope_bytes(model.config, options);
  };
  return of(ModelRole::target) + (files.draft ? of(ModelRole::draft) : 0);
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

std::unique_ptr<KvPool> make_pool(Model& model, std::int32_t kv_tokens) {
  const KvLayout layout = model.kv_layout(kv_tokens, kv_page_size);
  model.prepare_pool(layout);
  return std::make_unique<KvPool>(model.devices(), layout);
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
