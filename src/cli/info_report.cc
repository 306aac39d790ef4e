#include "cli/info_report.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "base/memory_limit.h"
#include "engine/cpu_type.h"
#include "engine/loading.h"
#include "engine/shared_vocabulary.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/workers.h"
#include "models/checkpoint.h"
#include "models/config.h"
#include "models/tokenizer/tokenizer.h"
#include "models/weights.h"

namespace coppice::cli {
namespace {

using Json = nlohmann::ordered_json;

Json weights_json(const std::filesystem::path& dir) {
  const Checkpoint checkpoint(dir);
  std::uint64_t bytes = 0;
  for (const SafetensorsFile& file : checkpoint.files()) bytes += file.size();
  std::map<std::string, std::uint64_t> elements;
  for (const auto& [name, file] : checkpoint.names()) {
    const StoredTensor& tensor = checkpoint.files()[file].tensors().at(name);
    elements[tensor.dtype] += tensor.elements();
  }
  return {{"bytes", bytes},
          {"files", checkpoint.files().size()},
          {"tensors", checkpoint.tensors()},
          {"elements", elements}};
}

Json tokenizer_json(const std::filesystem::path& dir) {
  try {
    const auto tokenizer = Tokenizer::load(dir);
    return {{"file", tokenizer->file_kind()}, {"pieces", tokenizer->pieces()}};
  } catch (const Error& error) {
    return {{"error", error.what()}};
  }
}

}  // namespace

HostMemory plan_host_memory(const EngineOptions& options, const Device& device) {
  const ModelConfig target = read_config(options.target);
  std::optional<ModelConfig> draft;
  if (!options.draft.empty()) draft = read_config(options.draft);
  const DType type = cpu_type(options.cpu_dtype), kv_type = device.kv_dtype();
  HostMemory memory;
  memory.target_weights = packed_bytes(target, Checkpoint(options.target), type);
  if (draft) memory.draft_weights = packed_bytes(*draft, Checkpoint(options.draft), type);
  memory.available = available_memory();
  memory.kv_tokens = plan_host_kv(
      options, target, draft ? &*draft : nullptr, kv_type,
      std::max<std::int64_t>(0, memory.available - memory.target_weights - memory.draft_weights));
  memory.kv = memory.kv_tokens.target * kv_bytes_per_token(target, kv_type) +
              (draft ? memory.kv_tokens.draft * kv_bytes_per_token(*draft, kv_type) : 0);
  memory.rotary = rope_bytes(target, options) + (draft ? rope_bytes(*draft, options) : 0);
  EngineOptions settled = options;
  settled.max_batch_rows = plan_host_rows(options, memory.available);
  memory.logits = logit_bytes(settled, target, draft ? &*draft : nullptr);
  memory.sequences = options.max_sequences;
  memory.batch_rows = settled.max_batch_rows;
  return memory;
}

std::string pair_problem(const EngineOptions& options) {
  const ModelConfig target = read_config(options.target), draft = read_config(options.draft);
  if (!draft.unsupported.empty()) {
    return cat("coppice cannot run the draft: ", draft.unsupported.front());
  }
  std::unique_ptr<Tokenizer> tokenizer;
  try {
    tokenizer = Tokenizer::load(options.target);
  } catch (const Error&) {  // is reported with the target
  }
  try {
    require_shared_vocabulary(options, tokenizer.get(), target.vocab_size, draft.vocab_size);
  } catch (const Error& error) {
    return error.what();
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
  return json;
}

Json model_json(const std::filesystem::path& dir, DType kv_dtype) {
  const ModelConfig config = read_config(dir);
  std::vector<std::string> obstacles = config.unsupported;
  Json weights;
  try {
    weights = weights_json(dir);
  } catch (const Error& error) {
    obstacles.emplace_back(error.what());
    weights = {{"error", error.what()}};
  }
  Json json = {{"folder", dir.string()},
               {"runs", obstacles.empty()},
               {"cannot_run", obstacles},
               {"architecture", config.architecture},
               {"model_type", config.model_type},
               {"layers", config.layers},
               {"hidden_size", config.hidden_size},
               {"heads", config.heads},
               {"kv_heads", config.kv_heads},
               {"head_dim", config.head_dim},
               {"context_length", config.context_length},
               {"vocab_size", config.vocab_size}};
  if (config.unsupported.empty()) {
    json["parameters"] = parameter_count(config);
    json["tied_embeddings"] = config.tie_word_embeddings;
    json["kv_dtype"] = name_of(kv_dtype);
    json["kv_bytes_per_token"] = kv_bytes_per_token(config, kv_dtype);
  }
  json["bos_token"] = config.bos_token < 0 ? Json() : Json(config.bos_token);
  json["eos_tokens"] = config.eos_tokens;
  json["tokenizer"] = tokenizer_json(dir);
  json["weights"] = std::move(weights);
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
  return {{"device", "cpu"},
          {"bytes", memory.bytes()},
          {"uses", uses},
          {"free", memory.available},
          {"kv_tokens", memory.kv_tokens.target},
          {"draft_kv_tokens", memory.kv_tokens.draft},
          {"sequences", memory.sequences},
          {"batch_rows", memory.batch_rows}};
}

Json to_json(const MemoryPlan& plan) {
  Json uses = Json::array();
  for (const MemoryUse& use : plan.uses) {
    uses.push_back({{"purpose", use.purpose}, {"bytes", use.bytes}});
  }
  return {{"device", plan.device},        {"bytes", plan.bytes},
          {"uses", std::move(uses)},      {"free", plan.memory.free},
          {"budget", plan.memory.budget}, {"total", plan.memory.total},
          {"kv_tokens", plan.kv.target},  {"draft_kv_tokens", plan.kv.draft},
          {"sequences", plan.sequences},  {"batch_rows", plan.batch_rows}};
}

}  // namespace coppice::cli
