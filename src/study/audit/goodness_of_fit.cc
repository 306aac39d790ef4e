#include "study/audit/goodness_of_fit.h"

#include <algorithm>
#include <boost/math/distributions/chi_squared.hpp>
#include <boost/math/distributions/non_central_chi_squared.hpp>
#include <cmath>
#include <numbers>
#include <numeric>

namespace coppice::study {
namespace {

/// Most bins of a context: more would spread its samples thin.
constexpr std::size_t most_bins = 16;

struct Bin {
  double probability;
  double counted;
};

// E|counted / n - p| of a binomial count, by the normal law.
double mean_deviation(double probability, double samples) {
  return std::sqrt(2.0 * probability * std::max(0.0, 1.0 - probability) /
                   (std::numbers::pi * samples));
}

}  // namespace

double chi_square_tail(double chi_square, double degrees) {
  if (!(degrees > 0.0)) return chi_square > 0.0 ? 0.0 : 1.0;
  if (!(chi_square > 0.0)) return 1.0;
  if (std::isinf(chi_square)) return 0.0;
  return boost::math::cdf(
      boost::math::complement(boost::math::chi_squared_distribution<double>(degrees), chi_square));
}

double detectable_noncentrality(double degrees, double significance, double power) {
  const double bound = boost::math::quantile(
      boost::math::complement(boost::math::chi_squared(degrees), significance));
  return boost::math::non_central_chi_squared::find_non_centrality(degrees, bound, 1.0 - power);
}

double detectable_variation(double degrees, double samples, double significance, double power) {
  if (!(degrees > 0.0) || !(samples > 0.0)) return 1.0;
  const double noncentrality = detectable_noncentrality(degrees, significance, power);
  return std::min(1.0, std::sqrt(noncentrality / (4.0 * samples)));
}

double largest_variation(const Fit& fit, double power) {
  if (!(fit.degrees > 0.0) || !(fit.samples > 0.0)) return 0.0;
  if (!std::isfinite(fit.chi_square)) return 1.0;
  const double least = boost::math::quantile(boost::math::chi_squared(fit.degrees), 1.0 - power);
  if (fit.chi_square <= least) return 0.0;
  const double noncentrality = boost::math::non_central_chi_squared::find_non_centrality(
      fit.degrees, fit.chi_square, 1.0 - power);
  return std::min(1.0, std::sqrt(noncentrality / (4.0 * fit.samples)));
}

TokenLaw make_token_law(std::vector<float> probability, std::span<const TokenId> borderline) {
  TokenLaw law;
  law.possible.resize(probability.size());
  for (std::size_t t = 0; t < probability.size(); ++t) law.possible[t] = probability[t] > 0.0f;
  for (const TokenId token : borderline) law.possible[token] = true;
  law.order.resize(probability.size());
  std::iota(law.order.begin(), law.order.end(), 0);
  const std::size_t kept = std::min(ordered_tokens, law.order.size());
  std::partial_sort(law.order.begin(), law.order.begin() + static_cast<std::ptrdiff_t>(kept),
                    law.order.end(), [&](TokenId a, TokenId b) {
                      const float pa = probability[a];
                      const float pb = probability[b];
                      return pa != pb ? pa > pb : a < b;
                    });
  law.order.resize(kept);
  law.order.shrink_to_fit();
  law.probability = std::move(probability);
  return law;
}

void TokenTest::add(const TokenLaw& law, std::span<const TokenId> samples) {
  const auto n = static_cast<double>(samples.size());
  sums_.impossible +=
      std::ranges::count_if(samples, [&](TokenId token) { return !law.possible[token]; });
  std::vector<Bin> bins;
  double left = 1.0, counted_left = n;
  for (const TokenId token : law.order) {
    const auto probability = static_cast<double>(law.probability[token]);
    if (n * probability < least_expected || bins.size() + 1 >= most_bins) break;
    const auto counted = static_cast<double>(std::ranges::count(samples, token));
    bins.push_back({probability, counted});
    left -= probability;
    counted_left -= counted;
  }
  left = std::max(0.0, left);
  if (n * left >= least_expected || bins.empty()) {
    bins.push_back({left, counted_left});
  } else {
    bins.back().probability += left;
    bins.back().counted += counted_left;
  }
  if (bins.size() < 2) return;
  sums_.samples += n;
  ++sums_.contexts;
  for (const Bin& bin : bins) {
    const double expected = n * bin.probability;
    const double gap = bin.counted - expected;
    sums_.chi_square += gap * gap / expected;
    sums_.total_variation += 0.5 * std::abs(gap);
    sums_.expected_variation += 0.5 * n * mean_deviation(bin.probability, n);
  }
  sums_.degrees += static_cast<double>(bins.size()) - 1.0;
}

Fit TokenTest::fit() const {
  Fit fit = sums_;
  fit.p_value = fit.impossible > 0 ? 0.0 : chi_square_tail(fit.chi_square, fit.degrees);
  if (fit.samples > 0.0) {
    fit.total_variation /= fit.samples;
    fit.expected_variation /= fit.samples;
  }
  return fit;
}

}  // namespace coppice::study
