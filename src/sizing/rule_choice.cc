#include "sizing/rule_choice.h"

#include <algorithm>
#include <cmath>

#include "sizing/constants.h"

namespace coppice {
namespace {

using C = SizingConstants;

}  // namespace

double RuleChoice::usual_gain(double nodes) {
  return C::gain_per_doubling * std::log2(std::max(nodes, 1.0) / C::even_nodes);
}

double RuleChoice::usual_nodes(const CostTable& costs, std::int32_t most) {
  constexpr std::int32_t prefix = 1;
  const double enough = 1.5 * costs.target.seconds(1, prefix);
  std::int32_t nodes = 1;
  while (nodes < most && costs.target.seconds(nodes + 2, prefix) <= enough) ++nodes;
  return nodes;
}

// The normal law of g, what is usual being one observation and the difference of the rules' mean
// log rates another.
RuleChoice::Gain RuleChoice::gain(double usual_nodes) const {
  const double texts = rejection_.count + coupled_.count;
  const double nodes = std::exp((std::log(usual_nodes) + log_nodes_) / (1.0 + texts));
  const double usual_weight = 1.0 / (C::gain_spread * C::gain_spread);
  double weight = usual_weight, sum = usual_weight * usual_gain(nodes);
  if (rejection_.count > 0.0 && coupled_.count > 0.0) {
    const double difference =
        coupled_.log_rate / coupled_.count - rejection_.log_rate / rejection_.count;
    const double seen =
        1.0 / (C::text_spread * C::text_spread * (1.0 / rejection_.count + 1.0 / coupled_.count));
    weight += seen;
    sum += seen * difference;
  }
  return {sum / weight, 1.0 / std::sqrt(weight)};
}

Acceptance RuleChoice::choose(double usual_nodes) {
  const Gain g = gain(usual_nodes);
  const bool unsure = std::abs(g.mean) < C::sure * g.deviation;
  const bool explore = ++chosen_ % C::explore_every == 0 && unsure;
  return (g.mean > 0.0) != explore ? Acceptance::coupled : Acceptance::rejection;
}

void RuleChoice::record(Acceptance rule, double rate, double nodes) {
  Texts& texts = rule == Acceptance::coupled ? coupled_ : rejection_;
  texts.count += 1.0;
  texts.log_rate += std::log(rate);
  log_nodes_ += std::log(std::max(nodes, 1.0));
}

}  // namespace coppice
