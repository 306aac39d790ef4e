#include "drafting/lookahead.h"

#include <algorithm>

namespace coppice {
namespace {

// Costs have steps: so many passes more are tried that bring nothing themselves.
constexpr std::int32_t in_vain_at_most = 2;
// Positions below this value bring nothing.
constexpr double usual_least_value = 0.01;
// But where rows cost less than this, as where layers are copied in every pass, those count that
// are worth a row, down to the last value. (With dearer rows such positions, whose values are
// estimates, cost four texts of a 7B target 1 to 5% of their tokens per second.)
constexpr double next_to_free = 0.001, lowest_value = 0.0005;
constexpr std::int32_t furthest = 32;

}  // namespace

void Lookahead::reset() {
  last_passes_ = 0;
  for (std::vector<double>& costs : pass_costs_) costs.clear();
}

const Lookahead::Price& Lookahead::price(std::int32_t size) {
  while (size_ + static_cast<std::int32_t>(prices_.size()) <= size) {
    const std::int32_t next = size_ + static_cast<std::int32_t>(prices_.size());
    prices_.push_back({economics_.verify_cost(next) - economics_.verify_cost(size_),
                       economics_.least_node_cost(next)});
  }
  return prices_[static_cast<std::size_t>(size - size_)];
}

double Lookahead::pass_cost(std::int32_t rows, std::int32_t pass) {
  const auto p = static_cast<std::size_t>(pass), r = static_cast<std::size_t>(rows);
  if (p >= pass_costs_.size()) pass_costs_.resize(p + 1);
  std::vector<double>& known = pass_costs_[p];
  while (known.size() < r) {
    known.push_back(economics_.pass_cost(static_cast<std::int32_t>(known.size()) + 1, pass));
  }
  return known[r - 1];
}

// --- positions, best first --------------------------------------------------------------------

void Lookahead::offer(const OpenPosition& position) {
  if (position.value < least_value_ || position.passes > most_passes_) return;
  heap_.push_back({position.value, offered_.size()});
  std::push_heap(heap_.begin(), heap_.end());
  offered_.push_back(position);
}

void Lookahead::begin_taking(std::int32_t most_passes) {
  most_passes_ = most_passes;
  taken_.clear();
  offered_.clear();
  heap_.clear();
  for (const OpenPosition& position : open_) offer(position);
}

// The best one; what it opens is offered.
void Lookahead::take() {
  std::pop_heap(heap_.begin(), heap_.end());
  const OpenPosition at = offered_[heap_.back().at];
  heap_.pop_back();
  const GrowthPrior& tree = trees_[static_cast<std::size_t>(at.tree)];
  const bool has_deeper = at.depth < tree.most_depth;
  taken_.push_back({at.value, at.tree, at.passes, at.passes > 0 && at.rank == 0 && !at.certain,
                    has_deeper && tree.drafts});
  // The draft model's next child of the same node is offered by itself.
  if (at.rank < tree.last_rank && !at.certain) {
    const double reach = at.reach - at.value;
    const double value = reach * tree.calibration->position(at.rank + 1, at.depth);
    offer({std::min(at.value, value), reach, at.depth, at.rank + 1, at.passes, at.tree});
  }
  if (has_deeper && tree.drafts) {
    offer({at.value * tree.calibration->position(0, at.depth + 1), at.value, at.depth + 1, 0,
           at.passes + 1, at.tree});
  }
  if (has_deeper && at.follow > 0.0) {
    offer({at.value * at.follow, at.value, at.depth + 1, 0, at.passes, at.tree, true, at.follow});
  }
}

std::optional<std::size_t> Lookahead::next(std::size_t at, std::int32_t passes, double floor) {
  for (;; ++at) {
    if (at == taken_.size()) {
      if (heap_.empty()) return std::nullopt;
      take();
    }
    if (taken_[at].value <= floor) return std::nullopt;
    if (taken_[at].passes <= passes) return at;
  }
}

// --- growth -----------------------------------------------------------------------------------

bool Lookahead::try_passes(std::int32_t passes, GrowthPlan& best) {
  if (passes > most_passes_) begin_taking(passes + in_vain_at_most);
  more_passes_add_ = std::any_of(open_.begin(), open_.end(), [&](const OpenPosition& position) {
    return position.passes > passes && position.value >= least_value_;
  });
  rows_.assign(static_cast<std::size_t>(passes) + 1, 0);
  nodes_.assign(trees_.size(), 0);
  double gain = 0.0, drafting = 0.0;
  std::int32_t made = 0;
  bool better = false;
  std::optional<std::size_t> place = next(0, passes, price(size_).floor);
  for (std::int32_t size = size_ + 1; size <= most_ && place;) {
    const Taken at = taken_[*place];
    std::int32_t& nodes = nodes_[static_cast<std::size_t>(at.tree)];
    if (nodes == trees_[static_cast<std::size_t>(at.tree)].most) {
      place = next(*place + 1, passes, price(size - 1).floor);
      continue;
    }
    ++nodes;
    gain += at.value;
    if (at.is_row) {
      std::int32_t& rows = rows_[static_cast<std::size_t>(at.passes)];
      const std::int32_t pass = passed_ + at.passes - 1;
      if (rows > 0) drafting -= pass_cost(rows, pass);
      drafting += pass_cost(++rows, pass);
      made = std::max(made, at.passes);
    }
    const Price& priced = price(size);
    const double net = gain - drafting - priced.rows;
    if (net > best.net) {
      best = {net, made, size - size_, at.value};
      better = true;
    }
    if (at.has_deeper && at.passes == passes) more_passes_add_ = true;
    place = next(*place + 1, passes, priced.floor);
    ++size;
  }
  return better;
}

GrowthPlan Lookahead::best(std::span<const OpenPosition> open, std::span<const GrowthPrior> trees,
                           std::int32_t size, std::int32_t most, std::int32_t passed) {
  open_ = open;
  trees_ = trees;
  size_ = size;
  most_ = most;
  passed_ = passed;
  const std::int32_t begin = std::max(1, last_passes_);
  prices_.clear();
  const double row = economics_.least_node_cost(size);
  least_value_ = row < next_to_free ? std::max(row, lowest_value) : usual_least_value;
  begin_taking(begin + in_vain_at_most);
  GrowthPlan best;
  try_passes(0, best);
  if (!more_passes_add_) return best;
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
