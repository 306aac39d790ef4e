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
#include <limits>
#include <span>
#include <string>
#include <utility>
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

/// "4.03 [3.26, 5.56]"; the value alone if there is no interval; with a star behind it if it
/// compares times of two runs of the program.
std::string with_interval(const Estimate& estimate, int digits, bool of_two_runs = false);
/// The same with signs: "+0.22 [+0.11, +0.34]".
std::string signed_interval(const Estimate& estimate, int digits);
/// "0.004", "<0.001", "-" for no number.
std::string p_text(double p);

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

using Values = std::vector<double>;

/// A ratio of sums over prompts, of all of them and of each resample.
struct Ratio {
  Ratio(const Resampling& resampling, std::span<const double> above, std::span<const double> below);
  Estimate estimate() const { return estimate_of(value, resampled, prompts); }

  std::size_t prompts;
  double value;
  Values resampled;
};
Ratio operator/(const Ratio& a, const Ratio& b);
Ratio operator-(const Ratio& a, const Ratio& b);

/// A ratio of sums by itself. `above`, `below`: [prompts].
Estimate bootstrap(std::span<const double> above, std::span<const double> below,
                   const BootstrapOptions& options = {});

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

/// Plain decoding whose fastest part is this much faster than its slowest tells of a noisy machine.
inline constexpr double noisy_ratio = 1.2;

/// The mean of independent values and its t-interval, from least_rounds values.
Estimate mean_of_rounds(std::span<const double> values);

/// What a row brought, by prompt, [prompts], in one order for all rows that are compared.
struct PromptColumns {
  Values kept;            ///< tokens of steps (Result::kept_tokens())
  Values steps;           ///< target passes after prefill
  Values decoded;         ///< new tokens, without those that came with prefill
  Values decode_seconds;  ///< all after prefill
  /// The same of the plain decoding that each of its texts is compared with.
  Values plain_decoded, plain_seconds;
};

/// Tokens/s of a row, prefill left out, over those of its plain decoding.
Ratio speedup_of(const Resampling& resampling, const PromptColumns& row);

/// Two rows on the same prompts: their difference is resampled, not each of them by itself, so that
/// it can be clear where their own intervals overlap.
struct Comparison {
  std::size_t first = 0, second = 0;  ///< places of the rows
  Tested accepted_length;             ///< the first's less the second's, in tokens; none: 0
  /// The first's speed-up over the second's; none: 1. Where both are compared with the same plain
  /// decoding it is the ratio of their tokens/s.
  Tested speed;
};

/// Compares rows[first] with rows[second] for every one of `which`. Holm's family is all of
/// `which`, for accepted length and for speed apart. The ratio of speed-ups is tested as a
/// logarithm.
std::vector<Comparison> compare_rows(std::span<const PromptColumns> rows,
                                     std::span<const std::pair<std::size_t, std::size_t>> which,
                                     const BootstrapOptions& options = {});

}  // namespace coppice::study
