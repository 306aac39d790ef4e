// Estimates with intervals, by bootstrap over prompts.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

namespace coppice::study {

/// A value and its 95% interval. NaN where nothing was counted that it could be made from.
struct Estimate {
  double value = 0.0;
  double low = 0.0;
  double high = 0.0;
};

struct BootstrapOptions {
  std::int32_t resamples = 2000;
  std::uint64_t seed = 1;  ///< the same data gives the same interval
};

/// A figure out of sums over prompts, e.g. sums[0] / sums[1].
using OfSums = std::function<double(std::span<const double> sums)>;

/// `columns`: quantities by prompt, [quantity][prompt], all of one length. The value is `of_sums`
/// of the sums over all prompts; the interval is the percentile bootstrap's (Efron and Tibshirani
/// 1993, section 13.3): prompts are drawn with replacement, as many as there are, and the interval
/// holds the middle 95% of the values. Prompts are what varies; tokens of one text are not
/// independent. One prompt has no interval: low and high are NaN. Resamples without a finite value
/// are left out.
Estimate bootstrap(std::span<const std::vector<double>> columns, const OfSums& of_sums,
                   const BootstrapOptions& options = {});

}  // namespace coppice::study
