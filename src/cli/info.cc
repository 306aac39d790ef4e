#include <algorithm>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "base/mebibytes.h"
#include "cli/command.h"
#include "cli/generation_text.h"
#include "cli/idle_placement.h"
#include "cli/info_report.h"
#include "cli/option_values.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "engine/check_speculation.h"
#include "engine/cpu_type.h"
#include "engine/layer_plan.h"
#include "engine/loading.h"
#include "engine/memory_plan.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/workers.h"
#include "kernels/cuda_code.h"
#include "kernels/device.h"
#include "models/gguf/gguf_file.h"
#include "models/model.h"

namespace coppice::cli {
namespace {

po::options_description machine_options() {
  po::options_description d("Machine");
  d.add_options()("target", po::value<std::string>()->value_name("MODEL"),
                  "the model's folder or GGUF file, if it is not the first word")(
      "cpu-dtype",
      po::value<std::string>()->default_value("auto")->value_name(any_of(all_cpu_dtypes)),
      "the type of activations on the CPU")(
      "device", po::value<std::string>()->default_value("auto")->value_name(any_of(all_devices)),
      "whose memory is planned: a card's, the CPU's, or, by auto, the card's if there is one")(
      "kv-dtype",
      po::value<std::string>()->default_value("auto")->value_name(any_of(all_kv_dtypes)),
      "what keys and values are kept in; a GPU takes the model's type")(
      "draft", po::value<std::string>()->value_name("MODEL|none|self:TYPE"),
      "with this draft beside it; says whether it fits the target")(
      "target-weights",
      po::value<std::string>()->default_value("keep")->value_name(any_of(all_weight_roundings)),
      "with the target's matrices rounded so")(
      "draft-weights",
      po::value<std::string>()->default_value("keep")->value_name(any_of(all_weight_roundings)),
      "with the draft's rounded so")(
      "kv-tokens", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "tokens whose keys and values (KV) each model keeps, for all texts together; 0: one context "
      "of up to 8192, up to four in 256 MiB, or 2048 for each of --parallel texts, within a "
      "quarter of the free memory (on a GPU: what it has)")(
      "gpu-memory-fraction", po::value<double>()->default_value(0.9, "0.9")->value_name("F"),
      "part of the card's memory that may be used")("gpu-memory",
                                                    po::value<std::string>()->value_name("SIZE"),
                                                    "instead: so much of it, such as 24GiB")(
      "gpu-layers", po::value<std::string>()->default_value("auto")->value_name("N|auto|all"),
      "layers of the target that stay on the card; the others lie in host memory")(
      "draft-gpu-layers", po::value<std::string>()->default_value("auto")->value_name("N|auto|all"),
      "the same of the draft; auto: all")(
      "tensor-parallel", po::value<std::string>()->default_value("1")->value_name("N|auto"),
      "GPUs that share the target")("draft-tensor-parallel",
                                    po::value<std::int32_t>()->default_value(1)->value_name("N"),
                                    "GPUs that share the draft")(
      "devices", po::value<std::string>()->value_name("LIST"),
      "numbers of the GPUs to use, such as 0,1; if not given, from 0 on")(
      "host-memory", po::value<std::string>()->value_name("SIZE"),
      "host memory that the other layers may take; if not given, what is free")(
      "tree-size", po::value<std::int32_t>()->default_value(64)->value_name("N"), "largest tree")(
      "parallel", po::value<std::int32_t>()->default_value(1)->value_name("N"),
      "texts side by side, as `generate --batch` and `--n` write them; more of them plan more KV, "
      "and rows for all of their trees in one pass")(
      "format", po::value<std::string>()->default_value("text")->value_name("text|json"),
      "json: one object, whose names src/cli/README.md lists");
  return d;
}

/// A line in the form of describe_model().
std::string line(std::string name, const std::string& value) {
  name.resize(std::max(std::size_t{16}, name.size() + 1), ' ');
  return name + value + "\n";
}

/// What of the CUDA module there is to say; nothing where it is not installed.
std::string describe_cuda_code() {
  const CudaCode code = cuda_code();
  if (code.file.empty()) return "";
  std::string text =
      line("CUDA module",
           code.why_not.empty() ? cat(code.file, ", code for ", code.architectures) : code.why_not);
  if (code.card) {
    text += line("GPU kernels", cat(code.card->card, ": ", code.card->kernels));
    if (!code.card->warning.empty()) text += line("slower here", code.card->warning);
  }
  return text;
}

std::string describe_machine() {
  const char* cap = std::getenv(cpu::instruction_set_variable);
  const bool capped = cap != nullptr && *cap != '\0';
  std::string why_not;
  const bool has_gpu = has_cuda_device(&why_not);
  return line("processor", cat(cpu::describe_processor(), ", ", cpu::usable_threads(), " threads",
                               capped ? cat(", ", cpu::instruction_set_variable, "=", cap) : "")) +
         line("GPU", has_gpu ? "used, if --device does not say cpu" : "not used: " + why_not) +
         describe_cuda_code();
}

std::string megabytes(std::int64_t bytes) {
  return coppice::megabytes(static_cast<std::uint64_t>(bytes));
}

std::string describe(const HostMemory& memory) {
  return line("CPU memory",
              cat(megabytes(memory.bytes()), ": weights ", megabytes(memory.target_weights),
                  memory.draft_weights > 0
                      ? cat(" and the draft's ", megabytes(memory.draft_weights))
                      : "",
                  ", KV of ", memory.kv_tokens.target, " tokens ", megabytes(memory.kv),
                  ", rotary tables ", megabytes(memory.rotary), ", logits and distributions ",
                  megabytes(memory.logits), "; free now ", megabytes(memory.available))) +
         (memory.target_layers.streamed_bytes > 0 ? line("layers", describe(memory.target_layers))
                                                  : "") +
         (memory.folder.empty()
              ? ""
              : line("layers' file", cat("in ", printable(memory.folder.string()), ", where ",
                                         megabytes(memory.folder_free), " are free"))) +
         line("at a time", describe_batch(memory.sequences, memory.batch_rows));
}

[[noreturn]] void refuse_pair(const EngineOptions& options, const std::string& problem) {
  throw_failure(cat("draft ", quote(options.draft.string()), " ", problem));
}

// Throws Error(usage) for devices that are not there.
MemoryPlan plan_cards(EngineOptions options, Device& first) {
  const PairFiles files(options);
  settle_ranks(options, files, first);
  const auto further = make_further_devices(options, first);
  const std::vector<Device*> devices = devices_by_rank(first, further);
  return plan_memory(options, files, first, memory_of_others({devices.begin(), devices.end()}));
}

int print_object(const EngineOptions& options) {
  nlohmann::ordered_json json;
  if (options.target.empty()) {
    json["machine"] = machine_json();
    write_out(json_line(json));
    return 0;
  }
  const auto device = make_engine_device(options);
  json = model_json(options.target, device->kv_dtype());
  json["machine"] = machine_json();
  const bool runs = json["runs"];
  std::string problem, shortage;
  if (runs && !options.draft.empty()) {
    problem = pair_problem(options);
    json["pair"] = {{"fits", problem.empty()}};
    if (!problem.empty()) json["pair"]["error"] = problem;
  }
  if (runs && problem.empty()) {
    try {
      json["memory"] = device->shares_host_memory() ? to_json(plan_host_memory(options, *device))
                                                    : to_json(plan_cards(options, *device));
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::usage) throw;
      shortage = error.what();
      json["memory"] = {{"error", shortage}};
    }
  }
  write_out(json_line(json));
  if (!runs) {
    throw_failure(cat("model ", quote(options.target.string()),
                      ": coppice cannot run it; \"cannot_run\" says why"));
  }
  if (!problem.empty()) refuse_pair(options, problem);
  if (!shortage.empty()) throw_failure(shortage);
  return 0;
}

}  // namespace

int info(const std::vector<std::string>& arguments) {
  po::options_description hidden;
  hidden.add_options()("dir", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("dir", -1);
  po::variables_map values;
  if (!parse(arguments, machine_options(),
             "coppice info [MODEL] [options]: describe this machine and a model, a Hugging Face "
             "folder "
             "or a GGUF file, and say what of it coppice cannot run\n\n"
             "COPPICE_CPU_ISA in the environment caps the instructions that the CPU's code uses:\n"
             "sse4, avx2, avx512, avx512_bf16 or amx. COPPICE_CUDA_MODULE names the CUDA backend,\n"
             "libcoppice_cuda.so, or its folder, if it is not where coppice was installed.\n",
             values, hidden, positional)) {
    return 0;
  }
  const bool json = wants_json(values);
  std::vector<std::string> folders;
  if (values.count("dir") != 0) folders = values["dir"].as<std::vector<std::string>>();
  if (values.count("target") != 0) folders.push_back(text_in(values, "target"));
  const std::string draft = text_in(values, "draft");
  if (folders.empty()) {
    if (values.count("draft") != 0) throw_usage("info --draft needs a target: coppice info MODEL");
    if (json) return print_object({});
    write_out(describe_machine());
    return 0;
  }
  if (folders.size() != 1) throw_usage("info takes one model: coppice info MODEL");
  EngineOptions options;
  options.target = folders.front();
  options.device = named("device", text_in(values, "device"), all_devices);
  options.cpu_dtype = named("cpu-dtype", text_in(values, "cpu-dtype"), all_cpu_dtypes);
  options.kv_dtype = named("kv-dtype", text_in(values, "kv-dtype"), all_kv_dtypes);
  options.kv_tokens = count_in(values, "kv-tokens", 0);
  options.gpu_memory_fraction = values["gpu-memory-fraction"].as<double>();
  read_placement(values, options);
  options.max_tree_size = count_in(values, "tree-size", 1, largest_tree_size);
  options.max_sequences = count_in(values, "parallel", 1, most_sequences);
  if (draft != "none") options.draft = draft;
  const auto held = held_gguf(options.target);  // so that all is said of one file
  read_roundings(values, options);
  leave_out_idle_placement(values, options);
  if (values["tree-size"].defaulted() && !options.draft.empty()) {
    options.streamed_tree_size = usual_streamed_tree;
  }
  if (json) return print_object(options);
  const auto device = make_engine_device(options);  // refuses wrong options of any device
  const ModelDescription model = describe_model(options.target, device->kv_dtype());
  std::string text = model.text + describe_machine();
  if (!model.runs) {
    write_out(text);
    throw_failure(cat("model ", quote(options.target.string()),
                      ": coppice cannot run it; the lines \"cannot run\" say why"));
  }
  const std::string problem = options.draft.empty() ? "" : pair_problem(options);
  if (!options.draft.empty()) {
    text += line("pair", problem.empty() ? "token ids mean the same to draft and target"
                                         : printable(problem));
  }
  if (is_stored_quantised(options.target)) {
    text += line(
        "on a GPU",
        "quantised weights stay packed where its compute capability is 9.0 (but Q2_K), else they "
        "become BF16");
  }
  text += line("on the CPU", describe_cpu_types(options.target, options.cpu_dtype,
                                                rounding_of(options, ModelRole::target))) +
          line("--cpu-dtype bf16", describe_cpu_bf16());
  write_out(text);  // whatever the plan says
  if (!problem.empty()) refuse_pair(options, problem);
  write_out(device->shares_host_memory() ? describe(plan_host_memory(options, *device))
                                         : describe(plan_cards(options, *device)));
  return 0;
}

}  // namespace coppice::cli
