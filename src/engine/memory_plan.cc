#include "engine/memory_plan.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <memory>
#include <optional>

#include "base/error.h"
#include "base/mebibytes.h"
#include "base/memory_limit.h"
#include "engine/layer_plan.h"
#include "engine/loading.h"
#include "models/layer_sums.h"
#include "models/model_folder.h"
#include "models/weights.h"

namespace coppice {
namespace {

/// Free memory that is left for code that libraries load at first use, for recorded passes, and for
/// rounding of allocations.
constexpr std::size_t reserved_bytes = std::size_t{256} << 20;
/// And for what connects a card to others.
constexpr std::size_t connection_bytes = std::size_t{512} << 20;

/// Tokens of a text that a short one may have beside a tree.
constexpr std::int32_t short_text = 256;

/// What a process on a CPU takes beside what is planned: packing at load, threads, tokenizers.
constexpr std::int64_t host_process_bytes = std::int64_t{16} << 20;

// Returns what generations and the system itself take of the host's memory.
std::int64_t left_to_system(std::int64_t available_bytes) {
  return std::min<std::int64_t>(available_bytes / 16, reserved_bytes);
}

std::size_t sum(const std::vector<MemoryUse>& uses) {
  std::size_t bytes = 0;
  for (const MemoryUse& use : uses) bytes += use.bytes;
  return bytes;
}

// Of each rank.
std::size_t pool_bytes(const ModelConfig& config, DType dtype, std::int64_t tokens, int ranks) {
  const std::int64_t pages = (tokens + kv_page_size - 1) / kv_page_size;
  const std::int64_t of_token =
      kv_bytes_per_token(config, dtype) / config.kv_heads * kv_heads_of_rank(config, ranks);
  return static_cast<std::size_t>(pages * kv_page_size * of_token);
}

std::size_t pools_bytes(const ModelConfig& target, const ModelConfig* draft, DType dtype,
                        const KvTokens& kv, int ranks = 1, int draft_ranks = 1) {
  return pool_bytes(target, dtype, kv.target, ranks) +
         (draft == nullptr ? 0 : pool_bytes(*draft, dtype, kv.draft, draft_ranks));
}

KvTokens one_sequence_kv(const EngineOptions& options, const ModelConfig& target,
                         const ModelConfig* draft, DType dtype) {
  return {one_sequence_kv_tokens(target, options, dtype),
          draft == nullptr ? 0 : one_sequence_kv_tokens(*draft, options, dtype)};
}

// Pools of automatic size shrink together until they fit: those of many sequences down to those of
// one, which go down to a tree and a short sequence. By large steps: measured costs are kept by the
// pools' size, which should be the next time what it is now.
template <typename FitsMany, typename Fits>
KvTokens planned_kv(const EngineOptions& options, const ModelConfig& target,
                    const ModelConfig* draft, DType dtype, const FitsMany& fits_many,
                    const Fits& fits) {
  const auto of_both = [&](const auto& tokens) -> KvTokens {
    return {tokens(target), draft == nullptr ? 0 : tokens(*draft)};
  };
  KvTokens kv =
      of_both([&](const ModelConfig& config) { return wanted_kv_tokens(config, options, dtype); });
  if (options.kv_tokens > 0) return kv;
  const KvTokens wanted = kv, one = one_sequence_kv(options, target, draft, dtype);
  const auto more_than_one = [&] { return kv.target > one.target || kv.draft > one.draft; };
  for (int step = 1; more_than_one() && !fits_many(kv); ++step) {
    // 3/4, 1/2, 3/8, 1/4, ...
    const auto scaled = [&](std::int32_t tokens, std::int32_t least) {
      return std::max(least, tokens / (4 << step / 2) * (step % 2 == 1 ? 3 : 4));
    };
    kv = {scaled(wanted.target, one.target), scaled(wanted.draft, one.draft)};
  }
  const std::int32_t least = tree_rows(options) + short_text;
  for (std::int32_t eighths = 7; !fits(kv) && eighths >= 0; --eighths) {
    const auto scaled = [&](std::int32_t tokens) {
      return std::max(std::min(tokens, least), tokens / 8 * eighths);
    };
    kv = {scaled(one.target), scaled(one.draft)};
  }
  return kv;
}

/// The models of a plan.
struct PlannedModels {
  PlannedModels(const EngineOptions& options, const PairFiles& files, const Device& device)
      : planner(device.memory_planner()),
        target(plan_model(options, files, ModelRole::target, *planner)),
        draft(files.draft ? plan_model(options, files, ModelRole::draft, *planner) : nullptr),
        sampler(make_sampler(*planner, *target, draft.get(), options)) {}

  const ModelConfig* draft_config() const { return draft ? &draft->config() : nullptr; }

  const std::unique_ptr<Device> planner;
  const std::unique_ptr<Model> target, draft;
  const std::unique_ptr<DeviceSampler> sampler;
};

// The options with max_batch_rows settled: half as often as `fits` asks for it, if it is automatic.
template <typename Fits>
EngineOptions with_batch_rows(const EngineOptions& options, const Fits& fits) {
  EngineOptions settled = options;
  settled.max_batch_rows = batch_rows(options);
  while (!fits(settled) && options.max_batch_rows == 0 &&
         settled.max_batch_rows > tree_rows(options)) {
    settled.max_batch_rows = std::max(tree_rows(options), settled.max_batch_rows / 2);
  }
  return settled;
}

// Makes room for the trees of a target whose layers are copied in every pass.
void raise_tree_size(EngineOptions& options) {
  options.max_tree_size = std::max(options.max_tree_size, options.streamed_tree_size);
}

// Returns how many layers can stay if `room` is left beside a model none of whose layers do.
std::int32_t layers_beside(const Model& model, std::size_t room) {
  const std::int32_t places = model.options().stream_places;
  return most_resident(model.layer_blocks(), places,
                       room + layer_bytes(model.layer_blocks(), 0, places));
}

// Returns "; --gpu-layers N would fit" where a target is asked to keep more layers than that.
std::string fewer_layers(const EngineOptions& options, const Model& target, std::size_t needed,
                         std::size_t room) {
  if (options.gpu_layers < 0) return "";
  const std::int32_t places = target.options().stream_places;
  const std::size_t here = layer_bytes(target.layer_blocks(), options.gpu_layers, places);
  const std::size_t others = needed - std::min(needed, here);
  const std::int32_t most =
      most_resident(target.layer_blocks(), places, room - std::min(room, others));
  return most < 0 ? "" : cat("; --gpu-layers ", most, " would fit");
}

// Throws where the host has too little memory for the layers that visit.
void require_host_memory(const EngineOptions& options, const Model& target, const Model* draft) {
  // The other processes' layers lie in their hosts' memory.
  const auto ranks =
      static_cast<std::size_t>(options.rank_address.empty() ? options.tensor_parallel : 1);
  const auto draft_ranks = static_cast<std::size_t>(options.draft_tensor_parallel);
  const std::size_t drafts = draft ? draft->streamed_bytes() * draft_ranks : 0;
  const std::size_t needed = target.streamed_bytes() * ranks + drafts;
  if (needed == 0) return;
  const auto free = static_cast<std::uint64_t>(std::max<std::int64_t>(0, available_memory()));
  const std::uint64_t room =
      options.host_memory > 0 ? options.host_memory : free - std::min(free, free / 16);
  if (needed <= room) return;
  const std::int32_t staying =
      least_resident(target.layer_blocks(), (room - std::min<std::uint64_t>(room, drafts)) / ranks);
  const LayerPlacement now = placement_of(target);
  const std::int32_t places = target.options().stream_places;
  const std::size_t more = layer_bytes(target.layer_blocks(), staying, places) -
                           layer_bytes(target.layer_blocks(), now.resident, places);
  throw_failure(cat(
      "too little host memory: ", now.layers - now.resident, " of the target's ", now.layers,
      " layers are to lie there, which takes ", mebibytes(needed), ", but ", mebibytes(room),
      options.host_memory > 0 ? " may be used; raise host-memory, or keep " : " are free; keep ",
      staying, " layers on the card (gpu-layers), which takes ", mebibytes(more),
      " more of its memory, or use a quantised target"));
}

// Throws where the layers that are asked to stay take more of the host's memory than weights may.
void require_layers_fit(const EngineOptions& options, std::span<const std::size_t> blocks,
                        std::size_t others, std::int32_t layers) {
  const std::int32_t staying = std::min(options.gpu_layers, layers);
  const std::int32_t places = ModelOptions().stream_places;
  const std::size_t weights = others + layer_bytes(blocks, staying, places);
  const auto room = static_cast<std::size_t>(options.host_memory);
  if (weights <= room) return;
  const std::int32_t most = others > room ? -1 : most_resident(blocks, places, room - others);
  throw_failure(cat("too little memory: weights with ", staying, " of the target's ", layers,
                    " layers in memory (gpu-layers) take ", mebibytes(weights), ", but ",
                    mebibytes(room), " may be used (host-memory); ",
                    most < 0 ? "raise host-memory, or use a quantised model"
                             : cat("gpu-layers ", most, " would fit")));
}

}  // namespace

void plan_host_layers(EngineOptions& options, const PairFiles& files, DType compute_dtype,
                      std::int64_t available_bytes, const BytesBeside& bytes_beside) {
  if (options.gpu_layers >= 0 && options.host_memory == 0) return;
  const ModelFiles& target = files.target;
  const auto blocks = packed_layer_bytes(target.weights, compute_dtype, target.config.layers);
  const auto visiting = visiting_bytes(blocks, 0);
  auto others = static_cast<std::size_t>(packed_bytes(target.weights, compute_dtype)) - visiting;
  if (files.draft) {
    others += static_cast<std::size_t>(packed_bytes(files.draft->weights, compute_dtype));
  }
  if (options.gpu_layers >= 0) {
    return require_layers_fit(options, blocks, others, target.config.layers);
  }
  const auto available = static_cast<std::size_t>(std::max<std::int64_t>(0, available_bytes));
  const auto beside_of = [&](const EngineOptions& tried) {
    return bytes_beside ? std::min(available, static_cast<std::size_t>(bytes_beside(tried))) : 0;
  };
  const std::size_t beside = beside_of(options);
  const std::size_t given = options.host_memory > 0 ? options.host_memory : available;
  if (others + visiting <= std::min(given, available - beside)) return;
  const std::int32_t places = ModelOptions().stream_places;
  const std::size_t least = others + layer_bytes(blocks, 0, places);
  // KV of automatic size takes up to a quarter of what is free. What passes and KV take is an
  // estimate: where it leaves too little, that quarter alone is left to them.
  const std::size_t most = available - available / 4,
                    left =
                        given < available ? available - beside : std::min(most, available - beside);
  const std::size_t room = std::min(given, least <= left ? left : most);
  if (least > room) {
    if (others + visiting <= std::min(given, available)) return;
    throw_failure(
        cat("too little memory: even if all layers of the target lie in a file, weights take ",
            mebibytes(least), ", but ", mebibytes(room),
            room == given ? " may be used (host-memory)" : " are free for them",
            "; use a quantised model, a smaller one or no draft, or free memory"));
  }
  options.gpu_layers = most_resident(blocks, places, room - others);
  options.host_memory = room;
  EngineOptions raised = options;
  raise_tree_size(raised);
  // Larger trees pay where layers are read in every pass, but not at the price of more such layers.
  if (beside_of(raised) <= available - room) options = raised;
}

std::int64_t bytes_beside_weights(const EngineOptions& options, const PairFiles& files,
                                  const Device& device, std::int64_t available_bytes) {
  EngineOptions settled = options;
  settled.max_batch_rows = plan_host_rows(options, available_bytes);
  const std::int32_t least = tree_rows(options) + short_text;
  const KvTokens kv = options.kv_tokens > 0 ? KvTokens{options.kv_tokens, options.kv_tokens}
                                            : KvTokens{least, least};
  const ModelConfig* const draft = files.draft ? &files.draft->config : nullptr;
  const std::size_t pools = pools_bytes(files.target.config, draft, device.kv_dtype(), kv);
  return host_workspace_bytes(settled, files, device) + static_cast<std::int64_t>(pools) +
         left_to_system(available_bytes) + host_process_bytes;
}

void plan_host_layers(EngineOptions& options, const PairFiles& files, const Device& device,
                      std::int64_t available_bytes) {
  plan_host_layers(options, files, device.compute_dtype(), available_bytes,
                   [&](const EngineOptions& tried) {
                     return bytes_beside_weights(tried, files, device, available_bytes);
                   });
}

std::int32_t plan_host_rows(const EngineOptions& options, std::int64_t available_bytes) {
  const ModelConfig target = read_config(options.target);
  std::optional<ModelConfig> draft;
  if (!options.draft.empty()) draft = read_config(options.draft);
  const auto fits = [&](const EngineOptions& settled) {
    return logit_bytes(settled, target, draft ? &*draft : nullptr) <= available_bytes / 16;
  };
  return with_batch_rows(options, fits).max_batch_rows;
}

KvTokens plan_host_kv(const EngineOptions& options, const ModelConfig& target,
                      const ModelConfig* draft, DType dtype, std::int64_t available_bytes) {
  const auto pools = [&](const KvTokens& kv) { return pools_bytes(target, draft, dtype, kv); };
  const auto room = static_cast<std::size_t>(available_bytes - left_to_system(available_bytes));
  const auto fits = [&](const KvTokens& kv) { return pools(kv) <= room; };
  const KvTokens kv = planned_kv(
      options, target, draft, dtype,
      [&](const KvTokens& many) {
        return pools(many) <= static_cast<std::size_t>(available_bytes / 4);
      },
      fits);
  if (!fits(kv)) {
    throw_failure(cat("too little memory: KV of ", kv.target, " tokens needs ",
                      mebibytes(pools(kv)), ", and of what this process may use ", mebibytes(room),
                      " are free; use fewer kv-tokens, smaller trees or a smaller model, or free "
                      "memory"));
  }
  return kv;
}

std::vector<DeviceMemory> memory_of_others(std::span<const Device* const> devices) {
  std::vector<DeviceMemory> all;
  for (const Device* const device : devices.subspan(1)) {
    const DeviceScope current(*device);
    all.push_back(device->memory());
  }
  return all;
}

MemoryPlan plan_memory(const EngineOptions& options, const PairFiles& files, const Device& device,
                       std::span<const DeviceMemory> others) {
  MemoryPlan plan;
  plan.device = device.description();
  plan.memory = device.memory();
  plan.ranks = options.tensor_parallel;
  plan.draft_ranks = options.draft_tensor_parallel;
  plan.ranks_on_device = ranks_on_first_gpu(options);
  for (const DeviceMemory& memory : others) {
    plan.memory.free = std::min(plan.memory.free, memory.free);
    plan.memory.budget = std::min(plan.memory.budget, memory.budget);
  }
  plan.memory.free /= static_cast<std::size_t>(plan.ranks_on_device);
  const DType dtype = device.kv_dtype();
  const std::size_t reserved = reserved_bytes + (others.empty() ? 0 : connection_bytes);
  const std::size_t usable = plan.memory.free - std::min(plan.memory.free, reserved);
  const std::size_t room = std::min(plan.memory.budget, usable);
  EngineOptions silent = options;
  silent.progress = nullptr;
  if (options.gpu_layers >= 0 && options.gpu_layers < files.target.config.layers) {
    raise_tree_size(silent);
  }
  std::optional<PlannedModels> models;
  const auto with_pools = [&](const KvTokens& kv) {
    return sum(models->planner->memory_use()) + pools_bytes(models->target->config(),
                                                            models->draft_config(), dtype, kv,
                                                            plan.ranks, plan.draft_ranks);
  };
  // Passes of fewer rows, if it is that or not even one whole context.
  EngineOptions settled = with_batch_rows(silent, [&](const EngineOptions& tried) {
    models.emplace(tried, files, device);
    return with_pools(one_sequence_kv(tried, models->target->config(), models->draft_config(),
                                      dtype)) <= room;
  });
  plan.sequences = options.max_sequences;
  const auto fits = [&](const KvTokens& kv) { return with_pools(kv) <= room; };
  plan.kv =
      planned_kv(settled, models->target->config(), models->draft_config(), dtype, fits, fits);
  if (!fits(plan.kv) && options.gpu_layers < 0) {
    EngineOptions streaming = silent;
    streaming.gpu_layers = 0;
    raise_tree_size(streaming);
    models.emplace(streaming, files, device);
    const auto one = [](const KvTokens&) { return false; };
    plan.kv =
        planned_kv(streaming, models->target->config(), models->draft_config(), dtype, one, fits);
    if (fits(plan.kv)) {
      streaming.gpu_layers = layers_beside(*models->target, room - with_pools(plan.kv));
      models.emplace(streaming, files, device);
      settled = streaming;
      settled.max_batch_rows = batch_rows(streaming);
    }
  }
  if (!fits(plan.kv)) {
    const std::size_t together = with_pools(plan.kv), fixed = with_pools({});
    const bool busy = usable < plan.memory.budget;
    throw_failure(cat(
        "too little memory on ", plan.device, ": models and workspace need ", mebibytes(fixed),
        ", KV of ", plan.kv.target, " tokens ", mebibytes(together - fixed), ", ",
        mebibytes(together), " together, but ", mebibytes(room), " of ",
        mebibytes(plan.memory.total),
        busy ? " are free; end other programs on the card, or use fewer kv-tokens, a smaller model "
               "or --device cpu"
             : " may be used; raise gpu-memory-fraction or gpu-memory, or use fewer kv-tokens, "
               "a smaller model or --device cpu",
        fewer_layers(options, *models->target, together, room)));
  }
  require_host_memory(options, *models->target, models->draft.get());
  plan.batch_rows = settled.max_batch_rows;
  plan.max_tree_size = settled.max_tree_size;
  plan.target_layers = placement_of(*models->target, plan.ranks);
  if (models->draft) plan.draft_layers = placement_of(*models->draft, plan.draft_ranks);
  Device& planner = *models->planner;
  const auto target_pool = make_pool(*models->target, plan.kv.target);
  const auto draft_pool = models->draft ? make_pool(*models->draft, plan.kv.draft) : nullptr;
  plan.uses = planner.memory_use();
  plan.bytes = sum(plan.uses);
  return plan;
}

std::string describe_batch(std::int32_t sequences, std::int32_t batch_rows) {
  return cat(sequences == 1 ? "one text" : cat("up to ", sequences, " texts"), ", ", batch_rows,
             " rows judged in a pass");
}

std::string describe(const MemoryPlan& plan) {
  const int ranks = std::max(plan.ranks, plan.draft_ranks);
  std::string text =
      cat("memory on ", plan.device,
          plan.ranks_on_device > 1 ? cat(", one of ", plan.ranks_on_device, " equal parts of it")
          : ranks > 1              ? cat(", the first of ", ranks, " that share")
                                   : "",
          "\n");
  const auto line = [&](const std::string& what, std::size_t bytes) {
    char buffer[160];
    std::snprintf(buffer, sizeof(buffer), "  %-34s %13s\n", what.c_str(), megabytes(bytes).c_str());
    text += buffer;
  };
  for (const MemoryUse& use : plan.uses) line(use.purpose, use.bytes);
  line("together", plan.bytes);
  line("may be used", plan.memory.budget);
  line(plan.ranks_on_device > 1 ? "free now, its part" : "free now", plan.memory.free);
  line("of the card's", plan.memory.total);
  for (const auto& [name, layers] :
       {std::pair{"target", plan.target_layers}, std::pair{"draft", plan.draft_layers}}) {
    if (const std::string streamed = describe(layers); !streamed.empty()) {
      text += cat("  ", name, ": ", streamed, "\n");
    }
  }
  for (const auto& [name, split] :
       {std::pair{"target", plan.ranks}, std::pair{"draft", plan.draft_ranks}}) {
    if (split > 1) text += cat("  ", name, ": split over ", split, " devices\n");
  }
  text += cat("  KV tokens: target ", plan.kv.target);
  if (plan.kv.draft > 0) text += cat(", draft ", plan.kv.draft);
  return text + "; " + describe_batch(plan.sequences, plan.batch_rows) + "\n";
}

}  // namespace coppice
