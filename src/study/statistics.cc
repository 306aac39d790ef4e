#include "study/statistics.h"

#include <algorithm>
#include <boost/math/distributions/normal.hpp>
#include <boost/math/distributions/students_t.hpp>
#include <boost/math/statistics/univariate_statistics.hpp>
#include <cmath>
#include <numeric>
#include <random>

#include "base/error.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double nan = std::numeric_limits<double>::quiet_NaN();
constexpr double upper_tail = 0.975;

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

double student_quantile(std::size_t n, double share) {
  return boost::math::quantile(boost::math::students_t(static_cast<double>(n - 1)), share);
}

/// What the spread of a bootstrap of n values falls short by: it divides by n, not n - 1.
double narrowness(std::size_t n) {
  return std::sqrt(static_cast<double>(n) / static_cast<double>(n - 1));
}

/// Hesterberg's share of resamples below the interval.
double lower_share(std::size_t n) {
  const double reach = student_quantile(n, upper_tail) * narrowness(n);
  return boost::math::cdf(boost::math::normal(), -reach);
}

std::string interval(const Estimate& estimate, const auto& print) {
  if (!std::isfinite(estimate.low) || !std::isfinite(estimate.high)) return print(estimate.value);
  return cat(print(estimate.value), " [", print(estimate.low), ", ", print(estimate.high), "]");
}

double sum_of(std::span<const double> column) {
  return std::accumulate(column.begin(), column.end(), 0.0);
}

template <typename Combine>
Ratio combined(Ratio a, const Ratio& b, Combine combine) {
  a.value = combine(a.value, b.value);
  std::transform(a.resampled.begin(), a.resampled.end(), b.resampled.begin(), a.resampled.begin(),
                 combine);
  return a;
}

void adjust(std::vector<Comparison>& comparisons, Tested Comparison::*figure) {
  std::vector<double> p_values;
  for (const Comparison& one : comparisons) p_values.push_back((one.*figure).p);
  const std::vector<double> adjusted = holm_adjusted(p_values);
  for (std::size_t i = 0; i < adjusted.size(); ++i) {
    (comparisons[i].*figure).p_holm = adjusted[i];
  }
}

}  // namespace

std::string with_interval(const Estimate& estimate, int digits, bool of_two_runs) {
  return interval(estimate, [&](double value) { return fixed(value, digits); }) +
         (of_two_runs ? " *" : "");
}

std::string signed_interval(const Estimate& estimate, int digits) {
  return interval(estimate, [&](double value) {
    const std::string text = fixed(value, digits);
    return text.front() == '-' ? text : "+" + text;
  });
}

std::string p_text(double p) { return p < 0.001 ? "<0.001" : fixed(p, 3); }

Resampling::Resampling(std::size_t prompts, const BootstrapOptions& options)
    : prompts_(prompts), resamples_(static_cast<std::size_t>(options.resamples)) {
  if (prompts < static_cast<std::size_t>(least_prompts)) {
    resamples_ = 0;
    return;
  }
  times_.assign(resamples_ * prompts_, 0);
  std::mt19937_64 random(options.seed);
  for (std::size_t r = 0; r < resamples_; ++r) {
    for (std::size_t i = 0; i < prompts_; ++i) ++times_[r * prompts_ + pick(random, prompts_)];
  }
}

std::vector<double> Resampling::sums(std::span<const double> column) const {
  std::vector<double> sums(resamples_, 0.0);
  for (std::size_t r = 0; r < resamples_; ++r) {
    const std::uint16_t* times = times_.data() + r * prompts_;
    double sum = 0.0;
    for (std::size_t p = 0; p < prompts_; ++p) sum += times[p] * column[p];
    sums[r] = sum;
  }
  return sums;
}

Estimate estimate_of(double value, std::vector<double> resampled, std::size_t n) {
  Estimate estimate = {value, nan, nan, static_cast<std::int32_t>(n)};
  if (!std::isfinite(value)) estimate.value = nan;
  std::erase_if(resampled, [](double one) { return !std::isfinite(one); });
  if (!std::isfinite(value) || resampled.empty() || n < least_prompts) return estimate;
  std::ranges::sort(resampled);
  const double share = lower_share(n);
  estimate.low = quantile(resampled, share);
  estimate.high = quantile(resampled, 1.0 - share);
  return estimate;
}

Ratio::Ratio(const Resampling& resampling, std::span<const double> above,
             std::span<const double> below)
    : prompts(resampling.prompts()),
      value(sum_of(above) / sum_of(below)),
      resampled(resampling.sums(above)) {
  const Values divisors = resampling.sums(below);
  for (std::size_t r = 0; r < resampled.size(); ++r) resampled[r] /= divisors[r];
}

Ratio operator/(const Ratio& a, const Ratio& b) { return combined(a, b, std::divides<>()); }
Ratio operator-(const Ratio& a, const Ratio& b) { return combined(a, b, std::minus<>()); }

Estimate bootstrap(std::span<const double> above, std::span<const double> below,
                   const BootstrapOptions& options) {
  return Ratio(Resampling(above.size(), options), above, below).estimate();
}

double p_value(std::span<const double> resampled, double none, std::size_t n) {
  double below = 0.0, above = 0.0, all = 0.0, sum = 0.0, squares = 0.0;
  for (const double value : resampled) {
    if (!std::isfinite(value)) continue;
    below += value <= none ? 1.0 : 0.0;
    above += value >= none ? 1.0 : 0.0;
    all += 1.0;
    sum += value - none;
    squares += (value - none) * (value - none);
  }
  if (n < least_prompts || all == 0.0) return nan;
  const double tail = std::min(below, above);
  const auto normal_reach = [&](double count) {
    return -boost::math::quantile(boost::math::normal(), (count + 1.0) / (all + 2.0));
  };
  double reach = normal_reach(tail);
  if (tail == 0.0) {
    const double mean = sum / all;
    const double spread = std::sqrt(std::max(0.0, squares / all - mean * mean));
    // Without any spread it is what the resamples' number alone says.
    if (spread > 0.0) reach = std::max(reach, std::abs(mean) / spread);
  }
  if (reach <= 0.0) return 1.0;
  const boost::math::students_t student(static_cast<double>(n - 1));
  return std::min(1.0, 2.0 * boost::math::cdf(student, -reach / narrowness(n)));
}

std::vector<double> holm_adjusted(std::span<const double> p_values) {
  std::vector<std::size_t> order;
  for (std::size_t i = 0; i < p_values.size(); ++i) {
    if (!std::isnan(p_values[i])) order.push_back(i);
  }
  std::ranges::sort(order, [&](std::size_t a, std::size_t b) {
    return p_values[a] != p_values[b] ? p_values[a] < p_values[b] : a < b;
  });
  std::vector<double> adjusted(p_values.size(), nan);
  double least = 0.0;
  for (std::size_t i = 0; i < order.size(); ++i) {
    least = std::max(least, static_cast<double>(order.size() - i) * p_values[order[i]]);
    adjusted[order[i]] = std::min(1.0, least);
  }
  return adjusted;
}

Estimate mean_of_rounds(std::span<const double> values) {
  const std::size_t n = values.size();
  if (n == 0) return {nan, nan, nan, 0};
  const double mean = boost::math::statistics::mean(values.begin(), values.end());
  Estimate estimate = {mean, nan, nan, static_cast<std::int32_t>(n)};
  if (n < static_cast<std::size_t>(least_rounds)) return estimate;
  const double variance = boost::math::statistics::sample_variance(values.begin(), values.end());
  const double reach =
      student_quantile(n, upper_tail) * std::sqrt(variance / static_cast<double>(n));
  estimate.low = mean - reach;
  estimate.high = mean + reach;
  return estimate;
}

Ratio speedup_of(const Resampling& resampling, const PromptColumns& row) {
  return Ratio(resampling, row.decoded, row.decode_seconds) /
         Ratio(resampling, row.plain_decoded, row.plain_seconds);
}

std::vector<Comparison> compare_rows(std::span<const PromptColumns> rows,
                                     std::span<const std::pair<std::size_t, std::size_t>> which,
                                     const BootstrapOptions& options) {
  const std::size_t prompts = rows.empty() ? 0 : rows[0].steps.size();
  const Resampling resampling(prompts, options);
  std::vector<Ratio> lengths, speeds;
  for (const PromptColumns& row : rows) {
    lengths.emplace_back(resampling, row.kept, row.steps);
    speeds.push_back(speedup_of(resampling, row));
  }
  std::vector<Comparison> comparisons;
  for (const auto& [first, second] : which) {
    Comparison one{first, second, {}, {}};
    const Ratio difference = lengths[first] - lengths[second];
    one.accepted_length.estimate = difference.estimate();
    one.accepted_length.p = p_value(difference.resampled, 0.0, prompts);
    const Ratio speed = speeds[first] / speeds[second];
    one.speed.estimate = speed.estimate();
    Values logs = speed.resampled;
    for (double& log : logs) log = std::log(log);
    one.speed.p = p_value(logs, 0.0, prompts);
    comparisons.push_back(std::move(one));
  }
  adjust(comparisons, &Comparison::accepted_length);
  adjust(comparisons, &Comparison::speed);
  return comparisons;
}

}  // namespace coppice::study
