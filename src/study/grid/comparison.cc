#include "study/grid/comparison.h"

#include <cmath>
#include <numeric>

namespace coppice::study {
namespace {

double sum_of(std::span<const double> column) {
  return std::accumulate(column.begin(), column.end(), 0.0);
}

/// A ratio of sums: of all prompts, and of each resample.
struct Ratio {
  Ratio(const Resampling& resampling, std::span<const double> above, std::span<const double> below)
      : value(sum_of(above) / sum_of(below)), resampled(resampling.sums(above)) {
    const std::vector<double> divisors = resampling.sums(below);
    for (std::size_t r = 0; r < resampled.size(); ++r) resampled[r] /= divisors[r];
  }
  double value;
  std::vector<double> resampled;
};

template <typename Combine>
std::vector<double> combined(const Ratio& a, const Ratio& b, Combine combine) {
  std::vector<double> values(a.resampled.size());
  for (std::size_t r = 0; r < values.size(); ++r) {
    values[r] = combine(a.resampled[r], b.resampled[r]);
  }
  return values;
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

std::vector<Comparison> compare_rows(std::span<const PromptColumns> rows,
                                     std::span<const std::pair<std::size_t, std::size_t>> which,
                                     const BootstrapOptions& options) {
  const std::size_t prompts = rows.empty() ? 0 : rows[0].steps.size();
  const Resampling resampling(prompts, options);
  std::vector<Ratio> lengths, speeds;
  for (const PromptColumns& row : rows) {
    lengths.emplace_back(resampling, row.judged_good, row.steps);
    speeds.emplace_back(resampling, row.decoded, row.decode_seconds);
  }
  std::vector<Comparison> comparisons;
  for (const auto& [first, second] : which) {
    Comparison one;
    one.first = first;
    one.second = second;
    std::vector<double> differences = combined(lengths[first], lengths[second], std::minus<>());
    one.accepted_length.p = p_value(differences, 0.0, prompts);
    one.accepted_length.estimate =
        estimate_of(lengths[first].value - lengths[second].value, std::move(differences), prompts);
    const std::vector<double> logs =
        combined(speeds[first], speeds[second], [](double a, double b) { return std::log(a / b); });
    one.speed.p = p_value(logs, 0.0, prompts);
    one.speed.estimate =
        estimate_of(speeds[first].value / speeds[second].value,
                    combined(speeds[first], speeds[second], std::divides<>()), prompts);
    comparisons.push_back(std::move(one));
  }
  adjust(comparisons, &Comparison::accepted_length);
  adjust(comparisons, &Comparison::speed);
  return comparisons;
}

}  // namespace coppice::study
