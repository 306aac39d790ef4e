#include "study/advise/prediction.h"

#include <algorithm>
#include <iterator>

namespace coppice::study {

double priced(const std::map<std::int32_t, double>& passes, const PassCosts& costs,
              std::int32_t prefix, const ClockRatio& ratio, double least) {
  double seconds = 0.0, price = least;
  std::int32_t next = 1;
  for (const auto& [rows, count] : passes) {
    for (; next <= rows; ++next) {
      price = std::max(price, ratio.at(next) * costs.seconds(next, prefix));
    }
    seconds += count * price;
  }
  return seconds;
}

void ClockRatio::add(std::int32_t rows, double clock_seconds, double table_seconds) {
  Sum& sum = seen_[rows];
  sum.clock += clock_seconds;
  sum.table += table_seconds;
}

double ClockRatio::at(std::int32_t rows) const {
  const auto ratio = [](const Sum& sum) {
    return sum.clock > 0.0 && sum.table > 0.0 ? sum.clock / sum.table : 1.0;
  };
  if (seen_.empty()) return 1.0;
  const auto above = seen_.lower_bound(rows);
  if (above == seen_.end()) return ratio(std::prev(above)->second);
  if (above == seen_.begin() || above->first == rows) return ratio(above->second);
  const auto below = std::prev(above);
  const double share = static_cast<double>(rows - below->first) / (above->first - below->first);
  return ratio(below->second) + share * (ratio(above->second) - ratio(below->second));
}

Prediction predict(const Workload& workload, const CostTable& costs, std::int32_t prefix,
                   const ClockCalibration& calibration) {
  Prediction p;
  p.accepted_length = workload.accepted_length();
  p.nodes = workload.drafted / workload.steps;
  const double plain = calibration.plain.at(1) * costs.target.seconds(1, prefix);
  p.verify_seconds =
      priced(workload.verify_passes, costs.target, prefix, calibration.verify, plain) /
      workload.steps;
  p.draft_seconds =
      priced(workload.draft_passes, costs.draft, prefix, calibration.draft) / workload.steps;
  p.other_seconds = calibration.step_seconds + calibration.node_seconds * p.nodes;
  p.tokens_per_second = p.accepted_length / (p.verify_seconds + p.draft_seconds + p.other_seconds);
  return p;
}

Prediction predict_plain(const CostTable& costs, std::int32_t prefix,
                         const ClockCalibration& calibration) {
  Prediction p;
  p.verify_seconds = calibration.plain.at(1) * costs.target.seconds(1, prefix);
  p.other_seconds = calibration.step_seconds;
  p.tokens_per_second = 1.0 / (p.verify_seconds + p.other_seconds);
  return p;
}

}  // namespace coppice::study
