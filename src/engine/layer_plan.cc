#include "engine/layer_plan.h"

#include <algorithm>

#include "base/error.h"
#include "base/mebibytes.h"
#include "models/weights.h"

namespace coppice {

std::size_t layer_bytes(std::span<const std::size_t> blocks, std::int32_t resident,
                        std::int32_t places) {
  const auto layers = static_cast<std::int32_t>(blocks.size());
  std::size_t staying = 0, largest = 0;
  std::int32_t visits = 0;
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    const std::size_t bytes = blocks[static_cast<std::size_t>(layer)];
    if (is_streamed(layer, layers, resident)) {
      largest = std::max(largest, bytes);
      ++visits;
    } else {
      staying += bytes;
    }
  }
  return staying + static_cast<std::size_t>(std::min(places, visits)) * largest;
}

std::size_t visiting_bytes(std::span<const std::size_t> blocks, std::int32_t resident) {
  const auto layers = static_cast<std::int32_t>(blocks.size());
  std::size_t bytes = 0;
  for (std::int32_t layer = 0; layer < layers; ++layer) {
    if (is_streamed(layer, layers, resident)) bytes += blocks[static_cast<std::size_t>(layer)];
  }
  return bytes;
}

std::int32_t most_resident(std::span<const std::size_t> blocks, std::int32_t places,
                           std::size_t room) {
  auto resident = static_cast<std::int32_t>(blocks.size());
  while (resident >= 0 && layer_bytes(blocks, resident, places) > room) --resident;
  return resident;
}

std::int32_t least_resident(std::span<const std::size_t> blocks, std::size_t room) {
  std::int32_t resident = 0;
  while (visiting_bytes(blocks, resident) > room) ++resident;
  return resident;
}

LayerPlacement placement_of(const Model& model) {
  LayerPlacement placement;
  placement.layers = model.config().layers;
  const std::int32_t asked = model.options().resident_layers;
  placement.resident = asked < 0 ? placement.layers : std::min(asked, placement.layers);
  placement.streamed_bytes = model.streamed_bytes();
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
  const std::string others = cat("the others, ", mebibytes(placement.streamed_bytes), ", ");
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
