#include <algorithm>
#include <cstdlib>

#include "cli/command.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "cpu_type.h"
#include "kernels/cpu/instruction_set.h"
#include "kernels/cpu/workers.h"
#include "kernels/device.h"
#include "loading.h"
#include "memory_plan.h"
#include "models/model.h"

namespace coppice::cli {
namespace {

po::options_description machine_options() {
  po::options_description d("Machine");
  d.add_options()("cpu-dtype", po::value<std::string>()->default_value("f32")->value_name("T"),
                  "f32 or bf16: the type of activations on the CPU")(
      "device", po::value<std::string>()->default_value("cpu")->value_name("D"),
      "cuda: also print what the model would take of the card's memory")(
      "draft", po::value<std::string>()->value_name("DIR"), "with this draft beside it")(
      "kv-tokens", po::value<std::int32_t>()->default_value(0)->value_name("N"),
      "KV slots per model; 0: from the context and the memory")(
      "gpu-memory-fraction", po::value<double>()->default_value(0.9, "0.9")->value_name("F"),
      "part of the card's memory that may be used")(
      "tree-size", po::value<std::int32_t>()->default_value(64)->value_name("N"), "largest tree");
  return d;
}

/// A line in the form of describe_model().
std::string line(std::string name, const std::string& value) {
  name.resize(std::max(std::size_t{16}, name.size() + 1), ' ');
  return name + value + "\n";
}

std::string describe_machine() {
  const char* cap = std::getenv(cpu::instruction_set_variable);
  const bool capped = cap != nullptr && *cap != '\0';
  std::string why_not;
  const bool has_gpu = has_cuda_device(&why_not);
  return line("processor", cat(cpu::describe_processor(), ", ", cpu::usable_threads(), " threads",
                               capped ? cat(", ", cpu::instruction_set_variable, "=", cap) : "")) +
         line("GPU", has_gpu ? "used, if --device does not say cpu" : "not used: " + why_not);
}

}  // namespace

int info(const std::vector<std::string>& arguments) {
  po::options_description hidden;
  hidden.add_options()("dir", po::value<std::vector<std::string>>());
  po::positional_options_description positional;
  positional.add("dir", -1);
  po::variables_map values;
  if (!parse(
          arguments, machine_options(),
          "coppice info [DIR] [options]: describe this machine and a model folder, and say what of "
          "it coppice cannot run\n\n"
          "COPPICE_CPU_ISA in the environment caps the instructions that the CPU's code uses:\n"
          "sse4, avx2, avx512, avx512_bf16 or amx. COPPICE_CUDA_MODULE names the CUDA backend,\n"
          "libcoppice_cuda.so, or its folder, if it is not where coppice was installed.\n",
          values, hidden, positional)) {
    return 0;
  }
  if (values.count("dir") == 0) {
    write_out(describe_machine());
    return 0;
  }
  if (values["dir"].as<std::vector<std::string>>().size() != 1) {
    throw_usage("info takes one model folder: coppice info DIR");
  }
  EngineOptions options;
  options.target = values["dir"].as<std::vector<std::string>>()[0];
  options.device = values["device"].as<std::string>();
  options.cpu_dtype = values["cpu-dtype"].as<std::string>();
  options.kv_tokens = values["kv-tokens"].as<std::int32_t>();
  options.gpu_memory_fraction = values["gpu-memory-fraction"].as<double>();
  options.max_tree_size = values["tree-size"].as<std::int32_t>();
  if (values.count("draft") != 0) options.draft = values["draft"].as<std::string>();
  if (options.kv_tokens < 0) throw_usage("--kv-tokens: use 1 or more, or 0 for automatic");
  if (options.max_tree_size < 1 || options.max_tree_size > 1024) {
    throw_usage(cat("--tree-size ", options.max_tree_size, ": use 1 to 1024"));
  }
  if (options.device == "cpu" && !options.draft.empty()) {
    throw_usage("info: --draft adds a draft to the memory on a GPU; give --device cuda too");
  }
  const auto device = make_engine_device(options);  // refuses wrong options of any device
  std::string text =
      describe_model(options.target) + describe_machine() +
      line("on the CPU", describe_cpu_types(options.target, cpu_type(options.cpu_dtype))) +
      line("--cpu-dtype bf16", describe_cpu_bf16());
  if (!device->shares_host_memory()) text += describe(plan_memory(options, *device));
  write_out(text);
  return 0;
}

}  // namespace coppice::cli
