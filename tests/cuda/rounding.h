// What a bf16 or f16 result may be.
#pragma once

#include <cmath>
#include <cstdint>

#include "kernels/random_values.h"

namespace coppice::testing {

inline constexpr double u = 0x1p-24;  ///< unit roundoff of f32

/// Whether `bf16` is the rounding of some number within `error` of `exact`. Rounding is monotone,
/// so it has to lie between the roundings of both ends; each of them is moved outwards by one more
/// f32 rounding, its own.
inline bool is_rounding_of(std::uint16_t bf16, double exact, double error) {
  const double slack = error + u * std::abs(exact) + 0x1p-149;
  const float low = widened(nearest_bf16(static_cast<float>(exact - slack)));
  const float high = widened(nearest_bf16(static_cast<float>(exact + slack)));
  const float value = widened(bf16);
  return low <= value && value <= high;
}

/// Value of an f16 bit pattern of a finite number, by its definition.
inline float half_value(std::uint16_t bits) {
  const float sign = (bits & 0x8000) != 0 ? -1.0f : 1.0f;
  const int exponent = (bits >> 10) & 31;
  const int fraction = bits & 1023;
  if (exponent == 0) return sign * std::ldexp(static_cast<float>(fraction), -24);
  return sign * std::ldexp(static_cast<float>(1024 + fraction), exponent - 25);
}

}  // namespace coppice::testing
