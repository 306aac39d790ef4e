#include "models/layer_sums.h"

#include <algorithm>

namespace coppice {

bool is_streamed(std::int32_t layer, std::int32_t layers, std::int32_t resident) {
  const std::int64_t visiting = resident < 0 ? 0 : std::max(0, layers - resident);
  return (layer + 1) * visiting / layers > layer * visiting / layers;
}

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

}  // namespace coppice
