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

double tail_or_zero(std::int64_t impossible, double chi_square, double degrees) {
  return impossible > 0 ? 0.0 : chi_square_tail(chi_square, degrees);
}

std::int64_t count_impossible(const TokenLaw& law, std::span<const TokenId> samples) {
  return std::ranges::count_if(samples, [&](TokenId token) { return !law.possible[token]; });
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
  sums_.impossible += count_impossible(law, samples);
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
  fit.p_value = tail_or_zero(fit.impossible, fit.chi_square, fit.degrees);
  if (fit.samples > 0.0) {
    fit.total_variation /= fit.samples;
    fit.expected_variation /= fit.samples;
  }
  return fit;
}

void RankTest::add(const TokenLaw& law, std::span<const TokenId> samples) {
  if (samples.empty()) return;
  const auto n = static_cast<double>(samples.size());
  counts_.samples += n;
  ++counts_.contexts;
  counts_.impossible += count_impossible(law, samples);

  std::array<double, groups> probability{}, counted{};
  probability.back() = 1.0;
  counted.back() = n;
  std::size_t rank = 0;
  for (std::size_t g = 0; g < group_ends.size(); ++g) {
    for (; rank < std::min(group_ends[g], law.order.size()); ++rank) {
      const TokenId token = law.order[rank];
      probability[g] += static_cast<double>(law.probability[token]);
      counted[g] += static_cast<double>(std::ranges::count(samples, token));
    }
    probability.back() -= probability[g];
    counted.back() -= counted[g];
  }
  probability.back() = std::max(0.0, probability.back());
  for (std::size_t g = 0; g < groups; ++g) {
    counted_[g] += counted[g];
    expected_[g] += n * probability[g];
    for (std::size_t h = 0; h < groups; ++h) {
      covariance_[g][h] += n * ((g == h ? probability[g] : 0.0) - probability[g] * probability[h]);
    }
  }
}

Fit RankTest::fit() const {
  Fit fit = counts_;
  if (!(fit.samples > 0.0)) return fit;

  // Bins are runs of groups: those that are too rare, or too sure, for a chi-square are joined to
  // the ones before.
  std::vector<std::size_t> ends = {0};  // of bins, the first one's start before them
  const auto sum = [&](const std::array<double, groups>& values, std::size_t bin) {
    return std::accumulate(values.begin() + ends[bin], values.begin() + ends[bin + 1], 0.0);
  };
  const auto covariance = [&](std::size_t i, std::size_t j) {
    double total = 0.0;
    for (std::size_t g = ends[i]; g < ends[i + 1]; ++g) {
      for (std::size_t h = ends[j]; h < ends[j + 1]; ++h) total += covariance_[g][h];
    }
    return total;
  };
  ends.push_back(1);
  for (std::size_t end = 2; end <= groups; ++end) {
    const std::size_t last = ends.size() - 2;
    if (covariance(last, last) >= least_expected) ends.push_back(end);
    ends.back() = end;
  }
  std::size_t bins = ends.size() - 1;
  if (bins > 1 && covariance(bins - 1, bins - 1) < least_expected) {
    ends.erase(ends.end() - 2);
    --bins;
  }
  for (std::size_t i = 0; i < bins; ++i) {
    fit.total_variation += 0.5 * std::abs(sum(counted_, i) - sum(expected_, i)) / fit.samples;
    fit.expected_variation +=
        0.5 * std::sqrt(2.0 * std::max(0.0, covariance(i, i)) / std::numbers::pi) / fit.samples;
  }
  // Cholesky over all bins but the last, whose count follows from the others. A bin that the ones
  // before it determine adds no degree of freedom.
  std::vector<std::vector<double>> lower(bins - 1, std::vector<double>(bins - 1, 0.0));
  std::vector<double> solved(bins - 1, 0.0);
  for (std::size_t i = 0; i + 1 < bins; ++i) {
    double gap = sum(counted_, i) - sum(expected_, i);
    for (std::size_t j = 0; j <= i; ++j) {
      double entry = covariance(i, j);
      for (std::size_t k = 0; k < j; ++k) entry -= lower[i][k] * lower[j][k];
      if (j < i) {
        lower[i][j] = lower[j][j] > 0.0 ? entry / lower[j][j] : 0.0;
        gap -= lower[i][j] * solved[j];
      } else if (entry > 1.0) {
        lower[i][i] = std::sqrt(entry);
        solved[i] = gap / lower[i][i];
        fit.chi_square += solved[i] * solved[i];
        fit.degrees += 1.0;
      }
    }
  }
  fit.p_value = tail_or_zero(fit.impossible, fit.chi_square, fit.degrees);
  return fit;
}

}  // namespace coppice::study
