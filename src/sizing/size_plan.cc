#include "sizing/size_plan.h"

#include <algorithm>

#include "sizing/constants.h"

namespace coppice {
namespace {

using C = SizingConstants;

// What the n-th node's row costs.
double step_to(const StepPrices& prices, std::int32_t n) {
  return prices.verify[static_cast<std::size_t>(n)] -
         prices.verify[static_cast<std::size_t>(n) - 1];
}

// What a row of a tree of n nodes costs, a step of the costs shared by all rows up to it: the slope
// at n of the lower convex hull of the costs up to there.
double share_of_row(const StepPrices& prices, std::int32_t n) {
  double slope = 0.0;
  for (std::int32_t m = 1; m < n; ++m) {
    slope = std::max(slope, (prices.verify[static_cast<std::size_t>(n)] -
                             prices.verify[static_cast<std::size_t>(m)]) /
                                (n - m));
  }
  return slope;
}

}  // namespace

// Values are held down to the parent's and the earlier sibling's, as where trees are grown
// (drafting/position_values.h), so that best first is by value.
void SizePlanner::offer(const AcceptanceCalibration& calibration, double bound, double reach,
                        std::int32_t depth, std::int32_t rank) {
  heap_.push_back({std::min(bound, reach * calibration.position(rank, depth)), reach, depth, rank});
  std::push_heap(heap_.begin(), heap_.end());
}

bool SizePlanner::try_depth(const AcceptanceCalibration& calibration, const StepPrices& prices,
                            std::int32_t depth, Best& best) {
  const auto most = static_cast<std::int32_t>(prices.verify.size()) - 1;
  heap_.clear();
  offer(calibration, 1.0, 1.0, 1, 0);
  double gain = 0.0;
  bool better = false;
  for (std::int32_t n = 1; n <= most; ++n) {
    std::pop_heap(heap_.begin(), heap_.end());
    const Place place = heap_.back();
    heap_.pop_back();
    // Not even if all that is left were worth as much.
    if (gain + place.value * (most - n + 1) - prices.verify[static_cast<std::size_t>(n)] <=
        best.net) {
      break;
    }
    gain += place.value;
    if (place.rank < C::last_rank) {
      offer(calibration, place.value, place.reach - place.value, place.depth, place.rank + 1);
    }
    if (place.depth < depth) offer(calibration, place.value, place.value, place.depth + 1, 0);
    const double net = gain - prices.verify[static_cast<std::size_t>(n)] -
                       (depth - 1) * prices.pass[static_cast<std::size_t>(std::max(1, n / depth))];
    if (net > best.net) {
      const double next = heap_.empty() ? 0.0 : heap_.front().value;
      best = {net, n, depth, place.value, next};
      better = true;
    }
    if (heap_.empty()) break;
  }
  return better;
}

void SizePlanner::replan(const AcceptanceCalibration& calibration, const StepPrices& prices,
                         SizePlan& plan) {
  Best best{-1e300, 0, 0, 0.0, 0.0};
  const std::int32_t first = plan.depth == 0 ? 1 : std::max(1, plan.depth - C::depths_around);
  const std::int32_t last =
      plan.depth == 0 ? C::deepest : std::min(C::deepest, plan.depth + C::depths_around);
  std::int32_t in_vain = 0;
  for (std::int32_t depth = first; depth <= last && in_vain <= C::depths_around; ++depth) {
    in_vain = try_depth(calibration, prices, depth, best) ? 0 : in_vain + 1;
  }
  plan.nodes = best.nodes;
  plan.depth = best.depth;
  plan.price = std::min(best.last, std::max(best.next, share_of_row(prices, best.nodes)));
  plan.node_prices.assign(prices.verify.size() - 1, plan.price);
  double dearest = plan.price;
  for (auto n = static_cast<std::size_t>(best.nodes); n < plan.node_prices.size(); ++n) {
    dearest = std::max(dearest, step_to(prices, static_cast<std::int32_t>(n) + 1));
    plan.node_prices[n] = dearest;
  }
}

}  // namespace coppice
