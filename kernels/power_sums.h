// What power_moments() (kernels/logits.h) gives, joined from parts of a row, for host and device
// alike.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/host_device.h"
#include "kernels/logits.h"

namespace coppice {

/// Scores of less than this part of the largest count for nothing, as on the host: their logarithm
/// would have few digits, or none.
inline constexpr float least_ratio = 1e-37f;

/// Sums over some scores of a row, relative to the largest of them, with
/// x = power log(score / largest). (Without initialisers: it lies in shared memory, too.)
struct PowerSums {
  float largest;  ///< 0: none counts
  float sum;      ///< of exp(x)
  float first;    ///< of x exp(x)
  float second;   ///< of x^2 exp(x)

  /// The same scores, relative to a larger one. All terms have one sign, so nothing cancels.
  COPPICE_HOST_DEVICE PowerSums relative_to(float larger, float power) const {
    const float ratio = largest / larger;
    // Also where both are 0.
    if (!(ratio >= least_ratio)) return {larger, 0.0f, 0.0f, 0.0f};
    const float shift = power * std::log(ratio), weight = std::exp(shift);
    return {larger, weight * sum, weight * (first + shift * sum),
            weight * (second + shift * (2.0f * first + shift * sum))};
  }
};

COPPICE_HOST_DEVICE inline PowerSums joined(const PowerSums& a, const PowerSums& b, float power) {
  const float larger = a.largest > b.largest ? a.largest : b.largest;
  const PowerSums one = a.relative_to(larger, power), other = b.relative_to(larger, power);
  return {larger, one.sum + other.sum, one.first + other.first, one.second + other.second};
}

inline PowerMoments moments_of(const PowerSums& sums) {
  PowerMoments moments;
  if (!(sums.sum > 0.0f)) return moments;
  const auto sum = static_cast<double>(sums.sum);
  moments.largest = static_cast<double>(sums.largest);
  moments.sum = sum;
  moments.mean = static_cast<double>(sums.first) / sum;
  moments.variance =
      std::max(0.0, static_cast<double>(sums.second) / sum - moments.mean * moments.mean);
  return moments;
}

}  // namespace coppice
