#include "study/report/depths.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace coppice::study {
namespace {

std::int64_t all_of(const Values& passes) {
  return static_cast<std::int64_t>(std::accumulate(passes.begin(), passes.end(), 0.0));
}

}  // namespace

void DepthCounts::add(std::size_t prompt, std::int32_t accepted, bool ended) {
  const auto deepest = static_cast<std::size_t>(accepted);
  for (std::vector<Values>* counts : {&reached_, &ended_}) {
    if (counts->size() <= deepest) counts->resize(deepest + 1, Values(reached_[0].size(), 0.0));
  }
  for (std::size_t depth = 0; depth <= deepest; ++depth) ++reached_[depth][prompt];
  if (ended) ++ended_[deepest][prompt];
}

std::vector<DepthRate> DepthCounts::rates(const Resampling& resampling) const {
  std::vector<DepthRate> rates;
  for (std::size_t depth = 1; depth < reached_.size(); ++depth) {
    const Values& here = reached_[depth];
    Values before = reached_[depth - 1];
    std::ranges::transform(before, ended_[depth - 1], before.begin(), std::minus<>());
    rates.push_back({all_of(before), all_of(here), Ratio(resampling, here, reached_[0]).estimate(),
                     Ratio(resampling, here, before).estimate()});
  }
  return rates;
}

}  // namespace coppice::study
