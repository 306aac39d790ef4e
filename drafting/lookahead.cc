#include "drafting/lookahead.h"

#include <algorithm>

namespace coppice {
namespace {

// Siblings beyond this rank bring nothing, nor do positions below this value. Costs have steps:
// so many passes more are tried that bring nothing themselves.
constexpr std::int32_t last_rank = 7, in_vain_at_most = 2;
constexpr double least_value = 0.01;
constexpr std::int32_t furthest = 32;

bool worth_less(const OpenPosition& a, const OpenPosition& b) { return a.value < b.value; }

}  // namespace

void Lookahead::offer(const OpenPosition& position) {
  if (position.value < least_value) return;
  heap_.push_back(position);
  std::push_heap(heap_.begin(), heap_.end(), worth_less);
}

bool Lookahead::try_passes(std::int32_t passes, Outlook& best) {
  heap_.clear();
  more_passes_add_ = false;
  for (const OpenPosition& position : open_) {
    if (position.value < least_value) continue;
    if (position.passes <= passes) {
      heap_.push_back(position);
    } else {
      more_passes_add_ = true;
    }
  }
  std::make_heap(heap_.begin(), heap_.end(), worth_less);
  rows_.assign(static_cast<std::size_t>(passes) + 1, 0);
  const double before = economics_.verify_cost(size_);
  double gain = 0.0, drafting = 0.0;
  std::int32_t made = 0;
  bool better = false;
  for (std::int32_t size = size_ + 1; size <= most_ && !heap_.empty(); ++size) {
    std::pop_heap(heap_.begin(), heap_.end(), worth_less);
    const OpenPosition at = heap_.back();
    heap_.pop_back();
    gain += at.value;
    if (at.passes > 0 && at.rank == 0) {  // its parent is a row of that pass
      std::int32_t& rows = rows_[static_cast<std::size_t>(at.passes)];
      const std::int32_t pass = passed_ + at.passes - 1;
      if (rows > 0) drafting -= economics_.pass_cost(rows, pass);
      drafting += economics_.pass_cost(++rows, pass);
      made = std::max(made, at.passes);
    }
    const double net = gain - drafting - (economics_.verify_cost(size) - before);
    if (net > best.net) {
      best = {net, made, size - size_, at.value};
      better = true;
    }
    if (!at.drawn) {
      if (at.rank < last_rank) {
        const double reach = at.reach - at.value;
        const double value = reach * calibration_.position(at.rank + 1, at.depth);
        offer({std::min(at.value, value), reach, at.depth, at.rank + 1, at.passes, false});
      }
      if (at.depth < most_depth_) {
        if (at.passes < passes) {
          offer({at.value * calibration_.position(0, at.depth + 1), at.value, at.depth + 1, 0,
                 at.passes + 1, false});
        } else {
          more_passes_add_ = true;
        }
      }
    }
    // No number of further rows costs less than this for each.
    if (!heap_.empty() && heap_.front().value <= economics_.least_node_cost(size)) break;
  }
  return better;
}

Outlook Lookahead::best(std::span<const OpenPosition> open, std::int32_t size, std::int32_t most,
                        std::int32_t most_depth, std::int32_t passed) {
  open_ = open;
  size_ = size;
  most_ = most;
  most_depth_ = most_depth;
  passed_ = passed;
  Outlook best;
  try_passes(0, best);
  if (!more_passes_add_) return best;
  const std::int32_t begin = std::max(1, last_passes_);
  std::int32_t in_vain = try_passes(begin, best) ? 0 : 1;
  for (std::int32_t passes = begin + 1;
       passes <= furthest && more_passes_add_ && in_vain < in_vain_at_most; ++passes) {
    in_vain = try_passes(passes, best) ? 0 : in_vain + 1;
  }
  if (best.passes <= begin) {
    in_vain = 0;
    for (std::int32_t passes = begin - 1; passes >= 1 && in_vain < in_vain_at_most; --passes) {
      in_vain = try_passes(passes, best) ? 0 : in_vain + 1;
    }
  }
  last_passes_ = best.passes;
  return best;
}

}  // namespace coppice
