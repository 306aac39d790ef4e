// Estimates with intervals, by bootstrap over prompts, and what two of them differ by.
//
// Intervals are the percentile bootstrap's (Efron and Tibshirani 1993, section 13.3), with the
// tails expanded for small samples (Hesterberg 2015, section 3.3.3): instead of the middle 95% of
// the resampled values, the middle 1 - 2 Phi(-t sqrt(n / (n - 1))), t being the 0.975 quantile of
// Student's law of n - 1 degrees of freedom. For a mean of normal values that is the t-interval.
// Prompts are what varies; tokens of one text are not independent.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <span>
#include <vector>

namespace coppice::study {

/// Fewer prompts have no interval.
inline constexpr std::int32_t least_prompts = 5;
/// Fewer rounds have none.
inline constexpr std::int32_t least_rounds = 3;

/// A value and its 95% interval. NaN where nothing was counted that it could be made from; low and
/// high NaN where there are too few prompts for an interval.
struct Estimate {
  double value = 0.0;
  double low = 0.0;
  double high = 0.0;
  std::int32_t n = 0;  ///< prompts (or rounds) that the interval is made from
};

struct BootstrapOptions {
  std::int32_t resamples = 4000;
  std::uint64_t seed = 1;  ///< the same data gives the same interval
};

/// Prompts drawn with replacement, as many as there are, again and again. Figures that share a
/// Resampling are paired: each resample holds the same prompts for all of them.
class Resampling {
 public:
  explicit Resampling(std::size_t prompts, const BootstrapOptions& options = {});
  std::size_t prompts() const { return prompts_; }
  /// The sum of `column`, [prompts], over each resample, [resamples].
  std::vector<double> sums(std::span<const double> column) const;

 private:
  std::size_t prompts_, resamples_;
  std::vector<std::uint16_t> times_;  ///< [resamples][prompts]: how often each was drawn
};

/// `resampled`: the figure's value in each resample of `n` prompts; without a finite value they are
/// left out.
Estimate estimate_of(double value, std::vector<double> resampled, std::size_t n);

/// A figure out of sums over prompts, e.g. sums[0] / sums[1].
using OfSums = std::function<double(std::span<const double> sums)>;

/// `columns`: quantities by prompt, [quantity][prompt], all of one length. The value is `of_sums`
/// of the sums over all prompts.
Estimate bootstrap(std::span<const std::vector<double>> columns, const OfSums& of_sums,
                   const BootstrapOptions& options = {});
Estimate bootstrap(std::span<const std::vector<double>> columns, const OfSums& of_sums,
                   const Resampling& resampling);

/// A difference or ratio, and how likely one as large would be if there were none.
struct Tested {
  Estimate estimate;
  double p = std::numeric_limits<double>::quiet_NaN();       ///< two-sided
  double p_holm = std::numeric_limits<double>::quiet_NaN();  ///< after Holm, over its family
};

/// Two-sided p of `none` under the resampled values of a figure: twice the share of them on its far
/// side, as a normal quantile, taken as Student's as the intervals are, so that p < 0.05 where the
/// interval leaves `none` out. Beyond the last resample the tail is taken as normal, of their mean
/// and spread. NaN for fewer than least_prompts.
double p_value(std::span<const double> resampled, double none, std::size_t n);

/// Adjusted p-values (Holm 1979): those below alpha are the hypotheses that fall at a chance of at
/// most alpha for any error among them all. NaN stays and does not count.
std::vector<double> holm_adjusted(std::span<const double> p_values);

/// The mean of independent values and its t-interval, from least_rounds values.
Estimate mean_of_rounds(std::span<const double> values);

}  // namespace coppice::study
