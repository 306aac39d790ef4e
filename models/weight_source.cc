#include "models/weight_source.h"

#include <algorithm>

#include "models/checkpoint.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_weights.h"
#include "models/packed_checkpoint.h"

namespace coppice {

std::uint64_t StoredTensor::elements() const {
  std::uint64_t product = 1;
  for (const std::uint64_t extent : shape) product *= extent;
  return product;
}

std::optional<WeightFormat> format_named(std::string_view dtype) {
  const auto found = std::find_if(all_weight_formats.begin(), all_weight_formats.end(),
                                  [&](WeightFormat format) { return name_of(format) == dtype; });
  if (found == all_weight_formats.end()) return std::nullopt;
  return *found;
}

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& model) {
  if (is_gguf(model)) return open_gguf_weights(model);
  auto checkpoint = std::make_unique<Checkpoint>(model);
  const WeightPacking packing = read_config(model).packing;
  if (packing.kind == WeightPacking::Kind::none) return checkpoint;
  return unpacked(std::move(checkpoint), packing);
}

}  // namespace coppice
