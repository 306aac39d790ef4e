#include "study/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>

namespace coppice::study {
namespace {

constexpr double lower_tail = 0.025, upper_tail = 0.975;

/// Linear between order statistics.
double quantile(std::span<const double> sorted, double share) {
  const double place = share * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - static_cast<double>(below)) * (sorted[above] - sorted[below]);
}

/// In [0, n), the same on every platform. The bias, n / 2^64, is far below what matters here.
std::size_t pick(std::mt19937_64& random, std::size_t n) {
  const double uniform = static_cast<double>(random() >> 11) * 0x1p-53;
  return static_cast<std::size_t>(uniform * static_cast<double>(n));
}

}  // namespace

Estimate bootstrap(std::span<const std::vector<double>> columns, const OfSums& of_sums,
                   const BootstrapOptions& options) {
  constexpr double nan = std::numeric_limits<double>::quiet_NaN();
  const std::size_t prompts = columns.empty() ? 0 : columns[0].size();
  std::vector<double> sums(columns.size(), 0.0);
  if (prompts == 0) return {nan, nan, nan};
  for (std::size_t c = 0; c < columns.size(); ++c) {
    for (const double value : columns[c]) sums[c] += value;
  }
  Estimate estimate = {of_sums(sums), nan, nan};
  if (!std::isfinite(estimate.value)) return {nan, nan, nan};
  if (prompts == 1) return estimate;
  std::mt19937_64 random(options.seed);
  std::vector<double> values;
  values.reserve(static_cast<std::size_t>(options.resamples));
  for (std::int32_t r = 0; r < options.resamples; ++r) {
    std::fill(sums.begin(), sums.end(), 0.0);
    for (std::size_t i = 0; i < prompts; ++i) {
      const std::size_t prompt = pick(random, prompts);
      for (std::size_t c = 0; c < columns.size(); ++c) sums[c] += columns[c][prompt];
    }
    const double value = of_sums(sums);
    if (std::isfinite(value)) values.push_back(value);
  }
  if (values.empty()) return estimate;
  std::sort(values.begin(), values.end());
  estimate.low = quantile(values, lower_tail);
  estimate.high = quantile(values, upper_tail);
  return estimate;
}

}  // namespace coppice::study
