#include "cli/idle_placement.h"

#include <cstdint>
#include <filesystem>
#include <initializer_list>
#include <limits>

#include "base/error.h"
#include "cli/terminal.h"
#include "engine/loading.h"
#include "kernels/device.h"
#include "models/config.h"

namespace coppice::cli {
namespace {

void tell_of_surplus_layers(const char* option, std::int32_t asked,
                            const std::filesystem::path& model) {
  if (asked <= 0 || asked == std::numeric_limits<std::int32_t>::max()) return;  // auto, none, all
  try {
    const std::int32_t layers = read_config(model).layers;
    if (asked > layers) {
      tell(cat("--", option, " ", asked, ": the model has ", layers,
               " layers, and all of them stay"));
    }
  } catch (const Error&) {
    // Loading says what is wrong.
  }
}

}  // namespace

void leave_out_idle_placement(const po::variables_map& values, EngineOptions& options) {
  check_device_limits(options);
  const auto tell_of = [&](std::initializer_list<const char*> names, const char* why) {
    for (const char* const name : names) {
      if (values.count(name) == 0 || values[name].defaulted()) continue;
      tell(cat("--", name, " has no effect", why));
    }
  };
  if (options.device == DeviceKind::cpu ||
      (options.device == DeviceKind::automatic && !has_cuda_device())) {
    tell_of({"gpu-memory", "gpu-memory-fraction"}, " on the CPU");
  }
  if (options.draft.empty()) {
    tell_of({"draft-gpu-layers", "draft-tensor-parallel"}, ": there is no draft");
    options.draft_gpu_layers = EngineOptions().draft_gpu_layers;
    options.draft_tensor_parallel = 1;
  }
  if (options.tensor_parallel == 1 && options.draft_tensor_parallel == 1) {
    tell_of({"rank-timeout"}, ": no model is split");
  }
  tell_of_surplus_layers("gpu-layers", options.gpu_layers, options.target);
  if (!options.draft.empty()) {
    tell_of_surplus_layers("draft-gpu-layers", options.draft_gpu_layers, options.draft);
  }
}

}  // namespace coppice::cli
