// The middle of repeated measurements.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace coppice::bench {

/// The mean of the two in the middle if their number is even; 0 of none.
inline double median(std::vector<double> values) {
  if (values.empty()) return 0.0;
  std::sort(values.begin(), values.end());
  return 0.5 * (values[(values.size() - 1) / 2] + values[values.size() / 2]);
}

}  // namespace coppice::bench
