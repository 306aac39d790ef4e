// Numbers into blocks of a quantised format.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/weight_format.h"

namespace coppice {

/// Rounds whole blocks of numbers, all finite, to q8_0, q4_0, q5_0, q4_k, q6_k, int4 or fp8. Scales
/// of q8_0, q4_0 and q5_0 are those of the largest magnitude, as in the gguf library, bit for bit;
/// of fp8, too: the largest becomes 448. Scales, zeros and minima of q4_k, q6_k and int4 are
/// searched for: of some candidates the least squares, of q4_k and q6_k weighted by magnitude.
void quantise(WeightFormat format, std::span<const float> numbers, std::byte* blocks);

/// The nearest IEEE binary16, ties to even; beyond its range infinite.
std::uint16_t half_of(float value);

}  // namespace coppice
