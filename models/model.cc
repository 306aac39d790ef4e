#include "models/model.h"

#include <algorithm>
#include <array>
#include <memory>
#include <new>
#include <string>
#include <utility>

#include "base/error.h"
#include "base/mebibytes.h"
#include "base/memory_limit.h"
#include "models/graph_model.h"
#include "models/layer_sums.h"
#include "models/model_folder.h"
#include "models/rope_table.h"
#include "models/sharded_model.h"
#include "models/weights.h"

namespace coppice {
namespace {

constexpr std::int32_t default_positions = 8192;

ModelOptions resolved(const ModelOptions& options, const ModelConfig& config) {
  ModelOptions out = options;
  if (out.max_rows < 1 || out.max_logit_rows < 0 || out.max_positions < 0 ||
      out.max_kv_tokens < 0) {
    throw_failure(cat("model options: max_rows ", out.max_rows, ", max_logit_rows ",
                      out.max_logit_rows, ", max_positions ", out.max_positions, ", max_kv_tokens ",
                      out.max_kv_tokens, " must not be negative, max_rows at least 1"));
  }
  if (out.max_logit_rows == 0) out.max_logit_rows = out.max_rows;
  out.max_logit_rows = std::min(out.max_logit_rows, out.max_rows);
  if (out.max_positions == 0) out.max_positions = default_positions;
  out.max_positions = std::min(out.max_positions, config.context_length);
  // Every token of a text has a position, and several tree tokens may share one.
  if (out.max_kv_tokens == 0) out.max_kv_tokens = out.max_positions + out.max_rows;
  return out;
}

// What GraphModel::queue() multiplies by. Layers have equal shapes.
std::array<ExpectedProduct, 5> products_of(const ModelConfig& config, const ModelOptions& options) {
  const std::int64_t hidden = config.hidden_size, ffn = config.intermediate_size;
  const std::int64_t q = std::int64_t{config.heads} * config.head_dim;
  const std::int64_t kv = std::int64_t{config.kv_heads} * config.head_dim;
  const bool accumulate = !config.layer_specs.front().output_norms;
  const std::int32_t rows = options.max_rows;
  return {{{hidden, q + 2 * kv, rows, config.qkv_bias, false},
           {q, hidden, rows, config.output_bias, accumulate},
           {hidden, 2 * ffn, rows, config.mlp_bias, false},
           {ffn, hidden, rows, config.mlp_bias, accumulate},
           {hidden, config.vocab_size, options.max_logit_rows, false, false}}};
}

void require_memory(const std::filesystem::path& dir, const ModelConfig& config,
                    const StoredWeights& stored, const ModelOptions& options, const Device& device,
                    int ranks_here) {
  const ModelSlice slice = slice_of(config, borders_of(config, stored), options.shard);
  if (!device.shares_host_memory()) return;  // its own allocator says what is free
  std::int64_t weights =
      ranks_here * packed_bytes(stored, device.compute_dtype(), options.shard.ranks);
  if (!options.stream_folder.empty()) {
    const auto blocks = packed_layer_bytes(stored, device.compute_dtype(), config.layers);
    weights += static_cast<std::int64_t>(
                   layer_bytes(blocks, options.resident_layers, options.stream_places)) -
               static_cast<std::int64_t>(layer_bytes(blocks, -1, 0));
  }
  std::int64_t rope_bytes = 0;
  for (const RopeSpec& rope : config.ropes) {
    rope_bytes += static_cast<std::int64_t>(rope_table_bytes(rope, options.max_positions));
  }
  const auto workspace =
      ranks_here *
      (static_cast<std::int64_t>(GraphModel::workspace_bytes(config, slice, options, device)) +
       rope_bytes);
  const std::int64_t available = available_memory();
  if (weights + workspace > available) {
    throw_failure(cat(dir.string(), ": too little memory: weights ", mebibytes(weights),
                      " + workspace ", mebibytes(workspace), " = ", mebibytes(weights + workspace),
                      ", available ", mebibytes(available), "; free memory, choose a smaller model",
                      options.stream_folder.empty()
                          ? ", or have layers of the target lie in a file (host-memory)"
                          : " or give a smaller host-memory"));
  }
}

[[noreturn]] void refuse_lack_of_memory(const std::filesystem::path& dir) {
  throw_failure(cat(dir.string(),
                    ": memory ran out while the model was loaded; free memory or choose a smaller "
                    "model"));
}

}  // namespace

std::string compute_name(const Model& model) {
  const bool integers = model.device().integer_products() && model.has_integers();
  return integers ? "int8" : name_of(model.device().compute_dtype());
}

void Model::announce(const std::filesystem::path& dir, Device& device,
                     const ModelOptions& options) {
  try {
    const ModelConfig config = read_config(dir);
    if (!config.unsupported.empty()) return;
    device.expect_products(products_of(config, resolved(options, config)));
  } catch (const Error&) {
    // load() says what is wrong.
  }
}

std::unique_ptr<Model> Model::load(const std::filesystem::path& dir, Device& device,
                                   const ModelOptions& options, const LoadProgress& progress) {
  return load(dir, std::array<Device*, 1>{&device}, options, progress);
}

std::unique_ptr<Model> Model::load(const std::filesystem::path& dir,
                                   std::span<Device* const> devices, const ModelOptions& options,
                                   const LoadProgress& progress) {
  try {
    return load_opened(ModelFiles(dir, options.rounding), devices, options, progress);
  } catch (const std::bad_alloc&) {
    refuse_lack_of_memory(dir);
  }
}

namespace {

// Calls load(config, options) with what `options` come to for a model that is split over `ranks`,
// of which `ranks_here` are this process's.
template <typename Load>
auto load_settled(const ModelFiles& files, const Device& device, const ModelOptions& options,
                  int ranks, int ranks_here, const Load& load) {
  try {
    ModelConfig config = files.config;
    ModelOptions limits = resolved(options, config);
    for (LayerSpec& layer : config.layer_specs) {
      // Windows that no text outgrows need no plan of their own.
      if (layer.attention.window >= limits.max_positions) layer.attention.window = 0;
    }
    if (ranks > 1) limits.shard.ranks = ranks;
    require_memory(files.dir, config, files.weights, limits, device, ranks_here);
    return load(std::move(config), limits);
  } catch (const std::bad_alloc&) {
    refuse_lack_of_memory(files.dir);
  }
}

// Loads ranks of this process.
ShardedModel::LoadRank rank_loader(const ModelFiles& files, const ModelConfig& config,
                                   const ModelOptions& options, const LoadProgress& progress) {
  return [&](const Shard& shard, Device& device, Communicator& communicator) {
    ModelOptions own = options;
    own.shard = shard;
    return std::make_unique<GraphModel>(config, files.weights, device, own,
                                        shard.rank == 0 ? progress : LoadProgress(), &communicator);
  };
}

}  // namespace

std::unique_ptr<Model> load_opened(const ModelFiles& files, std::span<Device* const> devices,
                                   const ModelOptions& options, const LoadProgress& progress) {
  Device& first = *devices.front();
  const auto ranks = static_cast<int>(devices.size());
  return load_settled(
      files, first, options, ranks, ranks,
      [&](ModelConfig config, const ModelOptions& limits) -> std::unique_ptr<Model> {
        if (ranks == 1) {
          return std::make_unique<GraphModel>(std::move(config), files.weights, first, limits,
                                              progress);
        }
        return std::make_unique<ShardedModel>(
            devices, first.make_communicators(devices, limits.rank_patience), limits.rank_patience,
            rank_loader(files, config, limits, progress));
      });
}

std::unique_ptr<Model> load_leading(const ModelFiles& files, Device& device,
                                    std::unique_ptr<RemoteRanks> others,
                                    const ModelOptions& options, const LoadProgress& progress) {
  return load_settled(files, device, options, others->ranks(), 1,
                      [&](const ModelConfig& config, const ModelOptions& limits) {
                        return std::make_unique<ShardedModel>(
                            device, std::move(others), limits,
                            rank_loader(files, config, limits, progress));
                      });
}

std::unique_ptr<GraphModel> load_joined(const ModelFiles& files, Device& device,
                                        const ModelOptions& options, Communicator& communicator,
                                        const LoadProgress& progress) {
  return load_settled(files, device, options, options.shard.ranks, 1,
                      [&](ModelConfig config, const ModelOptions& limits) {
                        return std::make_unique<GraphModel>(std::move(config), files.weights,
                                                            device, limits, progress,
                                                            &communicator);
                      });
}

}  // namespace coppice
