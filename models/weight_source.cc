#include "models/weight_source.h"

#include <algorithm>

#include "models/checkpoint.h"
#include "models/gguf/gguf_file.h"
#include "models/gguf/gguf_weights.h"
#include "models/packed_checkpoint.h"
#include "models/requantised.h"

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

namespace {

std::unique_ptr<WeightSource> open_as_stored(const std::filesystem::path& model,
                                             const ModelConfig& config) {
  if (is_gguf(model)) return open_gguf_weights(model, config);
  auto checkpoint = std::make_unique<Checkpoint>(model);
  if (config.packing.kind == WeightPacking::Kind::none) return checkpoint;
  return unpacked(std::move(checkpoint), config.packing);
}

}  // namespace

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& model,
                                           const ModelConfig& config,
                                           std::optional<WeightFormat> rounding) {
  auto source = open_as_stored(model, config);
  return rounding ? requantised(std::move(source), *rounding) : std::move(source);
}

std::unique_ptr<WeightSource> open_weights(const std::filesystem::path& model,
                                           std::optional<WeightFormat> rounding) {
  return open_weights(model, read_config(model), rounding);
}

std::map<std::string, std::uint64_t> elements_by_type(const WeightSource& source) {
  std::map<std::string, std::uint64_t> elements;
  for (const std::string& name : source.names()) {
    const StoredTensor& tensor = *source.find(name);
    elements[tensor.dtype] += tensor.elements();
  }
  return elements;
}

}  // namespace coppice
