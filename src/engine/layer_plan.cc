#include "engine/layer_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/mebibytes.h"

namespace coppice {

LayerPlacement placement_of(const Model& model, int ranks) {
  LayerPlacement placement;
  placement.layers = model.config().layers;
  const std::int32_t asked = model.options().resident_layers;
  placement.resident = asked < 0 ? placement.layers : std::min(asked, placement.layers);
  placement.streamed_bytes = model.streamed_bytes() * static_cast<std::size_t>(ranks);
  if (placement.streamed_bytes > 0) {
    const bool on_host = model.device().shares_host_memory();
    placement.streamed_from = !model.options().stream_folder.empty() ? "file"
                              : on_host                              ? "memory"
                                                                     : "host memory";
  }
  return placement;
}

std::string describe(const LayerPlacement& placement) {
  if (placement.streamed_bytes == 0) return "";
  const std::string others = cat("the others, ", megabytes(placement.streamed_bytes), ", ");
  const std::string stay = cat(placement.resident, " of ", placement.layers, " layers stay ");
  if (placement.streamed_from == "file") {
    return cat(stay, "in memory, ", others, "are read from a file in every pass");
  }
  if (placement.streamed_from == "memory") {
    return cat(stay, "where they are, ", others,
               "are copied in every pass, in vain: gpu-layers is for GPUs");
  }
  return cat(stay, "on the device, ", others, "are copied to it in every pass");
}

}  // namespace coppice
