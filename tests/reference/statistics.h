// Goodness of fit of counts to an exact law.
#pragma once

#include <cstdint>
#include <span>
#include <string>

namespace coppice::testing {

/// P(X > chi_square) for a chi-square variable with that many degrees of freedom.
double chi_square_tail(double chi_square, double degrees);

struct Fit {
  double chi_square = 0.0;       ///< infinite when an impossible outcome was seen
  double degrees = 0.0;          ///< of freedom
  double tail = 1.0;             ///< probability of a larger statistic under the law
  double total_variation = 0.0;  ///< of the empirical law from the exact one
  double total_variation_bound = 0.0;
  bool fits = true;

  std::string text() const;
};

/// Compares counts with the law they should follow. Cells of small expectation are pooled until
/// each has at least 5 (and cells of probability 0 must stay empty). The fit is rejected when a
/// correct sampler would look as bad with probability `significance` or less: by the chi-square
/// quantile, or by total variation beyond
///   sqrt(cells / draws) / 2 + sqrt(log(1 / significance) / (2 draws)),
/// the mean's bound by Jensen's inequality plus McDiarmid's deviation.
Fit compare(std::span<const std::int64_t> counts, std::span<const double> law,
            double significance = 1e-9);

}  // namespace coppice::testing
