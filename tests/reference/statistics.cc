#include "reference/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <sstream>
#include <vector>

namespace coppice::testing {

// Regularised upper incomplete gamma function Q(a, x), a = degrees / 2, x = chi_square / 2: the
// series of P below a + 1, the continued fraction (modified Lentz) above.
double chi_square_tail(double chi_square, double degrees) {
  if (degrees <= 0.0) return chi_square > 0.0 ? 0.0 : 1.0;
  if (chi_square <= 0.0) return 1.0;
  if (std::isinf(chi_square)) return 0.0;
  const double a = degrees / 2.0, x = chi_square / 2.0;
  const double front = std::exp(a * std::log(x) - x - std::lgamma(a));
  if (x < a + 1.0) {
    double term = 1.0 / a, sum = term;
    for (int n = 1; n < 10000 && term > sum * 1e-16; ++n) {
      term *= x / (a + n);
      sum += term;
    }
    return 1.0 - front * sum;
  }
  constexpr double tiny = 1e-300;
  double b = x + 1.0 - a, c = 1.0 / tiny, d = 1.0 / b, h = d;
  for (int n = 1; n < 10000; ++n) {
    const double an = -n * (n - a);
    b += 2.0;
    d = an * d + b;
    if (std::abs(d) < tiny) d = tiny;
    c = b + an / c;
    if (std::abs(c) < tiny) c = tiny;
    d = 1.0 / d;
    h *= d * c;
    if (std::abs(d * c - 1.0) < 1e-15) break;
  }
  return front * h;
}

std::string Fit::text() const {
  std::ostringstream out;
  out.precision(4);
  out << "chi-square " << chi_square << " on " << degrees << " degrees of freedom (tail " << tail
      << "), total variation " << total_variation << " (bound " << total_variation_bound << ")";
  return out.str();
}

Fit compare(std::span<const std::int64_t> counts, std::span<const double> law,
            double significance) {
  const auto draws =
      static_cast<double>(std::accumulate(counts.begin(), counts.end(), std::int64_t{0}));
  std::vector<std::size_t> order(law.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return law[a] < law[b]; });
  Fit fit;
  double pooled_expected = 0.0, pooled_count = 0.0, possible = 0.0;
  std::vector<std::pair<double, double>> cells;  // expected, counted
  for (const std::size_t i : order) {
    const auto counted = static_cast<double>(counts[i]);
    fit.total_variation += std::abs(counted / draws - law[i]) / 2.0;
    if (!(law[i] > 0.0)) {
      if (counted > 0.0) fit.chi_square = std::numeric_limits<double>::infinity();
      continue;
    }
    possible += 1.0;
    pooled_expected += law[i] * draws;
    pooled_count += counted;
    if (pooled_expected >= 5.0) {
      cells.emplace_back(pooled_expected, pooled_count);
      pooled_expected = pooled_count = 0.0;
    }
  }
  if (pooled_expected > 0.0 && !cells.empty()) {
    cells.back().first += pooled_expected;
    cells.back().second += pooled_count;
  }
  for (const auto& [expected, counted] : cells) {
    fit.chi_square += (counted - expected) * (counted - expected) / expected;
  }
  fit.degrees = std::max(0.0, static_cast<double>(cells.size()) - 1.0);
  if (fit.degrees == 0.0 && fit.chi_square < 1e-6) fit.chi_square = 0.0;
  fit.tail = chi_square_tail(fit.chi_square, fit.degrees);
  fit.total_variation_bound =
      0.5 * std::sqrt(possible / draws) + std::sqrt(-std::log(significance) / (2.0 * draws));
  fit.fits = fit.tail > significance && fit.total_variation <= fit.total_variation_bound;
  return fit;
}

}  // namespace coppice::testing
