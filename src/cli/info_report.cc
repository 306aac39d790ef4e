#include "cli/info_report.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/disk.h"
#include "base/error.h"
#include "base/mebibytes.h"
#include "base/memory_limit.h"
#include "cli/generation_text.h"
#include "engine/cpu_type.h"
#include "engine/layer_plan.h"
#include "engine/loading.h"
#include "engine/shared_vocabulary.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/workers.h"
#include "kernels/cuda_code.h"
#include "models/config.h"
#include "models/layer_sums.h"
#include "models/weights.h"

namespace coppice::cli {
namespace {

using Json = nlohmann::ordered_json;

Json weights_json(const ModelFolder& folder) {
  if (folder.source == nullptr) return {{"error", folder.no_weights}};
  const WeightSource& source = *folder.source;
  return {{"bytes", source.bytes()},
          {"files", source.file_count()},
          {"tensors", source.names().size()},
          {"elements", elements_by_type(source)}};
}

Json tokenizer_json(const ModelFolder& folder) {
  if (folder.tokenizer == nullptr) return {{"error", folder.no_tokenizer}};
  return {{"file", folder.tokenizer->file_kind()}, {"pieces", folder.tokenizer->pieces()}};
}

Json settings_json(const SettingNotes& settings) {
  Json obeyed = Json::array(), not_obeyed = Json::array();
  for (const Setting& one : settings.obeyed) {
    obeyed.push_back({{"file", one.file}, {"name", one.name}, {"value", one.value}});
  }
  for (const Setting& one : settings.not_obeyed) {
    not_obeyed.push_back({{"file", one.file}, {"name", one.name}});
  }
  Json json = {{"obeyed", std::move(obeyed)}, {"not_obeyed", std::move(not_obeyed)}};
  if (settings.more > 0) json["not_obeyed_more"] = settings.more;
  return json;
}

Json folder_json(const std::filesystem::path& dir, const std::vector<std::string>& obstacles) {
  return {{"folder", dir.string()}, {"runs", obstacles.empty()}, {"cannot_run", obstacles}};
}

// Copies within memory are beside the layers that they are made of; a file needs its disk's room.
void place_layers(const EngineOptions& options, HostMemory& memory) {
  const std::size_t bytes = memory.target_layers.streamed_bytes;
  if (options.host_memory == 0) {
    memory.target_weights += static_cast<std::int64_t>(bytes);
    return;
  }
  memory.folder = layers_folder();
  memory.folder_free = free_of_disk(memory.folder);
  if (bytes > static_cast<std::uint64_t>(memory.folder_free)) {
    throw_failure(cat(
        printable(memory.folder.string()), ": layers that memory does not hold take ",
        mebibytes(bytes), " there, but ", mebibytes(static_cast<std::uint64_t>(memory.folder_free)),
        " are free; free some space, or have XDG_CACHE_HOME name a folder with more"));
  }
}

}  // namespace

HostMemory plan_host_memory(const EngineOptions& options, const Device& device) {
  const PairFiles files(options);
  const ModelConfig& target = files.target.config;
  const ModelConfig* const draft = files.draft ? &files.draft->config : nullptr;
  const DType type = cpu_type(options.cpu_dtype), kv_type = device.kv_dtype();
  HostMemory memory;
  memory.target_weights = packed_bytes(files.target.weights, type);
  if (draft) memory.draft_weights = packed_bytes(files.draft->weights, type);
  memory.available = available_memory();
  EngineOptions settled = options;
  plan_host_layers(settled, files, device, memory.available);
  if (settled.gpu_layers >= 0 && settled.gpu_layers < target.layers) {
    const auto blocks = packed_layer_bytes(files.target.weights, type, target.layers);
    const auto all = static_cast<std::int32_t>(blocks.size());
    const std::size_t in_memory =
        layer_bytes(blocks, settled.gpu_layers, ModelOptions().stream_places);
    memory.target_weights -= static_cast<std::int64_t>(layer_bytes(blocks, all, 0) - in_memory);
    memory.target_layers = {all, std::min(settled.gpu_layers, all),
                            visiting_bytes(blocks, settled.gpu_layers),
                            settled.host_memory > 0 ? "file" : "memory"};
    if (memory.target_layers.streamed_bytes > 0) place_layers(settled, memory);
  }
  settled.max_batch_rows = plan_host_rows(settled, memory.available);
  const std::int64_t taken =
      memory.target_weights + memory.draft_weights + host_workspace_bytes(settled, files, device);
  memory.kv_tokens = plan_host_kv(settled, target, draft, kv_type,
                                  std::max<std::int64_t>(0, memory.available - taken));
  memory.kv = memory.kv_tokens.target * kv_bytes_per_token(target, kv_type) +
              (draft ? memory.kv_tokens.draft * kv_bytes_per_token(*draft, kv_type) : 0);
  memory.rotary = rope_bytes(target, options) + (draft ? rope_bytes(*draft, options) : 0);
  memory.logits = logit_bytes(settled, target, draft);
  memory.sequences = options.max_sequences;
  memory.batch_rows = settled.max_batch_rows;
  return memory;
}

std::string pair_problem(const EngineOptions& options) {
  const std::int64_t target_rows = read_config(options.target).vocab_size;
  std::int64_t draft_rows = 0;
  try {
    draft_rows = ModelFiles(options.draft).config.vocab_size;
  } catch (const Error& error) {
    return cat("cannot be run: ", error.what());
  }
  std::string ignored;  // is reported with the target
  const auto tokenizer = load_model_tokenizer(options.target, target_rows, ignored);
  try {
    require_shared_vocabulary(options, tokenizer.get(), target_rows, draft_rows);
  } catch (const Error& error) {
    return cat("does not fit the target: ", error.what());
  }
  return "";
}

Json machine_json() {
  std::string why_not;
  const bool has_gpu = has_cuda_device(&why_not);
  Json json = {{"processor", cpu::describe_processor()}, {"threads", cpu::usable_threads()}};
  const char* cap = std::getenv(cpu::instruction_set_variable);
  if (cap != nullptr && *cap != '\0') json["instruction_set_cap"] = cap;
  json["gpu"] = has_gpu;
  if (!has_gpu) json["gpu_not_used"] = why_not;
  if (const CudaCode code = cuda_code(); !code.file.empty()) {
    Json module = {{"file", code.file}};
    if (!code.why_not.empty()) {
      module["error"] = code.why_not;
    } else {
      module["architectures"] = code.architectures;
    }
    if (code.card) {
      module["card"] = code.card->card;
      module["kernels"] = code.card->kernels;
      if (!code.card->warning.empty()) module["warning"] = code.card->warning;
    }
    json["cuda_module"] = std::move(module);
  }
  return json;
}

Json model_json(const std::filesystem::path& dir, DType kv_dtype) {
  std::optional<ModelFolder> found;
  try {
    found.emplace(dir);
  } catch (const Error& error) {
    return folder_json(dir, {error.what()});
  }
  const ModelFolder& folder = *found;
  const ModelConfig& config = folder.config;
  Json json = folder_json(dir, folder.obstacles);
  json.update({{"architecture", config.architecture},
               {"model_type", config.model_type},
               {"layers", config.layers},
               {"hidden_size", config.hidden_size},
               {"heads", config.heads},
               {"kv_heads", config.kv_heads},
               {"head_dim", config.head_dim},
               {"context_length", config.context_length},
               {"vocab_size", config.vocab_size}});
  if (config.unsupported.empty()) {
    json["parameters"] = parameter_count(config);
    json["tied_embeddings"] = config.tie_word_embeddings;
    json["kv_dtype"] = name_of(kv_dtype);
    json["kv_bytes_per_token"] = kv_bytes_per_token(config, kv_dtype);
  }
  json["bos_token"] = config.bos_token < 0 ? Json() : Json(config.bos_token);
  json["eos_tokens"] = config.eos_tokens;
  json["settings"] = settings_json(folder.settings);
  json["tokenizer"] = tokenizer_json(folder);
  json["weights"] = weights_json(folder);
  return json;
}

Json to_json(const HostMemory& memory) {
  Json uses = Json::array();
  const std::pair<const char*, std::int64_t> all[] = {{"target weights", memory.target_weights},
                                                      {"draft weights", memory.draft_weights},
                                                      {"KV", memory.kv},
                                                      {"rotary tables", memory.rotary},
                                                      {"logits", memory.logits}};
  for (const auto& [purpose, bytes] : all) uses.push_back({{"purpose", purpose}, {"bytes", bytes}});
  Json json = {{"device", "cpu"},
               {"bytes", memory.bytes()},
               {"uses", uses},
               {"free", memory.available},
               {"kv_tokens", memory.kv_tokens.target},
               {"draft_kv_tokens", memory.kv_tokens.draft},
               {"sequences", memory.sequences},
               {"batch_rows", memory.batch_rows}};
  if (memory.target_layers.layers > 0) json["target_layers"] = to_json(memory.target_layers);
  if (!memory.folder.empty()) {
    json["layers_folder"] = memory.folder.string();
    json["layers_folder_free"] = memory.folder_free;
  }
  return json;
}

Json to_json(const MemoryPlan& plan) {
  Json uses = Json::array();
  for (const MemoryUse& use : plan.uses) {
    uses.push_back({{"purpose", use.purpose}, {"bytes", use.bytes}});
  }
  Json json = {{"device", plan.device},        {"bytes", plan.bytes},
               {"uses", std::move(uses)},      {"free", plan.memory.free},
               {"budget", plan.memory.budget}, {"total", plan.memory.total},
               {"kv_tokens", plan.kv.target},  {"draft_kv_tokens", plan.kv.draft},
               {"sequences", plan.sequences},  {"batch_rows", plan.batch_rows}};
  json["target_layers"] = to_json(plan.target_layers);
  if (plan.ranks > 1) json["target_devices"] = plan.ranks;
  if (plan.draft_ranks > 1) json["draft_devices"] = plan.draft_ranks;
  if (plan.draft_layers.layers > 0) json["draft_layers"] = to_json(plan.draft_layers);
  return json;
}

}  // namespace coppice::cli
