#include "study/audit/rounding.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace coppice::study {

double logit_rounding(const ModelConfig& config, DType compute, DType kv, double spread) {
  const auto longest = static_cast<double>(std::max(config.hidden_size, config.intermediate_size));
  const auto unit_of = [&](DType type) {
    switch (type) {
      case DType::f32:
        return std::ldexp(std::sqrt(longest), -24);
      case DType::f16:
        return std::ldexp(1.0, -11);
      case DType::bf16:
        break;
    }
    return std::ldexp(1.0, -9);
  };
  double unit = unit_of(compute);
  if (unit_of(kv) > unit) unit = std::sqrt(unit * (unit + unit_of(kv)));
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
