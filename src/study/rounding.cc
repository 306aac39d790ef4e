#include "study/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace coppice::study {

double logit_rounding(const ModelConfig& config, DType compute, double spread) {
  double unit = std::ldexp(1.0, -9);
  if (compute == DType::f32) {
    const auto longest =
        static_cast<double>(std::max(config.hidden_size, config.intermediate_size));
    unit = std::ldexp(1.0, -24) * std::sqrt(longest);
  } else if (compute == DType::f16) {
    unit = std::ldexp(1.0, -11);
  }
  return 2.0 * unit * std::sqrt(4.0 * config.layers + 1.0) * spread;
}

double spread_of(std::span<const double> logits) {
  double sum = 0.0, count = 0.0, best = -std::numeric_limits<double>::infinity();
  for (const double x : logits) {
    if (!std::isfinite(x)) continue;
    sum += x;
    count += 1.0;
    best = std::max(best, x);
  }
  return count > 0.0 ? best - sum / count : 0.0;
}

}  // namespace coppice::study
