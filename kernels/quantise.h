// Numbers into blocks of a quantised format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

#include "kernels/weight_format.h"

namespace coppice {

/// Formats that quantise() makes.
inline constexpr std::array made_weight_formats = {WeightFormat::q8_0, WeightFormat::q4_0,
                                                   WeightFormat::q5_0, WeightFormat::q4_k,
                                                   WeightFormat::q6_k};

/// Rounds whole blocks of numbers, all finite, to one of made_weight_formats. Scales of q8_0, q4_0
/// and q5_0 are those of the largest magnitude, as in the gguf library, bit for bit. Scales and
/// minima of q4_k and q6_k are searched for: of some candidates the least squares, weighted by
/// magnitude.
void quantise(WeightFormat format, std::span<const float> numbers, std::byte* blocks);

/// The nearest IEEE binary16, ties to even; beyond its range infinite.
std::uint16_t half_of(float value);

}  // namespace coppice
