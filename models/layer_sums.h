// What a model's layers take, of which some stay on the device and the others visit it
// (WeightStream).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace coppice {

/// Whether a layer visits the device, if of all so many stay (ModelOptions::resident_layers).
/// Visits are spread evenly, so that copies go on while layers that stay are computed.
bool is_streamed(std::int32_t layer, std::int32_t layers, std::int32_t resident);

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

}  // namespace coppice
