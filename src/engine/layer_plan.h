// Which of a model's layers stay on the device, and what those that visit it take (WeightStream).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "coppice.h"
#include "models/model.h"

namespace coppice {

/// Returns the device memory of a model's layers, whose bytes are `blocks` (Model::layer_blocks()),
/// if `resident` of them stay and the others visit `places`.
std::size_t layer_bytes(std::span<const std::size_t> blocks, std::int32_t resident,
                        std::int32_t places);
/// Returns the host memory of the layers that visit.
std::size_t visiting_bytes(std::span<const std::size_t> blocks, std::int32_t resident);
/// Returns how many layers may stay if the layers together get `room` on the device; -1 if even the
/// ring of places takes more.
std::int32_t most_resident(std::span<const std::size_t> blocks, std::int32_t places,
                           std::size_t room);
/// Returns the fewest layers that have to stay if visiting layers get `room` on the host.
std::int32_t least_resident(std::span<const std::size_t> blocks, std::size_t room);

/// Says where a loaded model's layers are.
LayerPlacement placement_of(const Model& model);
/// Returns "24 of 80 layers stay on the device, the others, 95.8 GiB, are copied to it in every
/// pass", or what is so on the CPU; "" if all stay.
std::string describe(const LayerPlacement& placement);

}  // namespace coppice
