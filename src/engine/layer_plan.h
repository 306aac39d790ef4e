// Which of a model's layers stay on the device, and what those that visit it take (WeightStream).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "coppice.h"
#include "models/model.h"

namespace coppice {

/// Device memory of a model's layers, by the bytes of each (Model::layer_blocks()), if `resident`
/// of them stay and the others visit `places`.
std::size_t layer_bytes(std::span<const std::size_t> blocks, std::int32_t resident,
                        std::int32_t places);
/// Host memory of those that visit.
std::size_t visiting_bytes(std::span<const std::size_t> blocks, std::int32_t resident);
/// As many layers as may stay if together they get `room` on the device; -1 if even a ring of the
/// places takes more.
std::int32_t most_resident(std::span<const std::size_t> blocks, std::int32_t places,
                           std::size_t room);
/// The fewest that have to stay if those that visit get `room` on the host.
std::int32_t least_resident(std::span<const std::size_t> blocks, std::size_t room);

/// Where a loaded model's layers are.
LayerPlacement placement_of(const Model& model);
/// "24 of 80 layers stay on the card, the others, 95.8 GiB, are copied to it in every pass"; "" if
/// all stay.
std::string describe(const LayerPlacement& placement);

}  // namespace coppice
