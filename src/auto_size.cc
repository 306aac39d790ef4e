#include "auto_size.h"

#include <algorithm>
#include <cmath>

namespace coppice {
namespace {

constexpr double keep = 0.93;  // discount of sums per speculative step
constexpr std::int32_t longest_wait = 64;
// Pseudo-observations. What drafts in use do at temperature 0 and 0.8: first children are taken
// seven times in ten, a known child about as often as the draft says.
constexpr double first_prior = 0.7, first_weight = 6.0;
constexpr double bin_weight = 3.0;

}  // namespace

AutoSize::AutoSize(const CostTable& costs, ChildDraw draw, double step_overhead_seconds)
    : costs_(costs), draw_(draw), overhead_(step_overhead_seconds) {}

// Finer towards 0 and 1, where small differences decide.
std::size_t AutoSize::bin_of(double probability) {
  constexpr std::array<double, bins - 1> edges = {0.02, 0.05, 0.1, 0.2, 0.35, 0.5,
                                                  0.65, 0.8,  0.9, 0.96, 0.99};
  return static_cast<std::size_t>(
      std::upper_bound(edges.begin(), edges.end(), probability) - edges.begin());
}

double AutoSize::position_acceptance(std::int32_t rank, double left) const {
  if (rank == 0) return first_child_.estimate(first_prior, first_weight);
  return later_[bin_of(left)].estimate(0.5 * left, bin_weight);
}

double AutoSize::child_acceptance(std::int32_t rank, double draft_prob) const {
  if (draw_ == ChildDraw::coupled) {
    // The noise has decided already; the draft's probability says little beside the rank.
    const auto place = std::min(static_cast<std::size_t>(rank), bins - 1);
    return known_[place].estimate(first_prior * std::pow(0.25, static_cast<double>(place)), bin_weight);
  }
  return known_[bin_of(draft_prob)].estimate(draft_prob, bin_weight);
}

double AutoSize::node_cost(std::int32_t size) const {
  return tokens_per_second_ * (costs_.target.hull_seconds(size + 2, prefix_) -
                               costs_.target.hull_seconds(size + 1, prefix_));
}

double AutoSize::pass_cost(std::int32_t rows) const {
  return tokens_per_second_ * costs_.draft.seconds(rows, prefix_);
}

double AutoSize::verify_cost(std::int32_t size) const {
  return tokens_per_second_ * costs_.target.seconds(size + 1, prefix_);
}

bool AutoSize::begin_step(std::int32_t prefix) {
  prefix_ = prefix;
  // A second is worth what it brings at the present rate: at the best rate, growth that just
  // pays at this price leaves the rate unchanged (Dinkelbach, 1967).
  tokens_per_second_ = 1.0 / costs_.target.seconds(1, prefix);
  if (seconds_ > 0.0) tokens_per_second_ = std::max(tokens_per_second_, tokens_ / seconds_);
  return wait_ == 0;
}

void AutoSize::record_plain() {
  if (wait_ > 0) --wait_;
}

void AutoSize::record(const TokenTree& tree, std::span<const std::int32_t> path,
                      std::int64_t passes) {
  const auto on_path = [&](std::int32_t node) {
    return node == 0 || std::find(path.begin(), path.end(), node) != path.end();
  };
  const auto add = [](Rate& rate, bool accepted) {
    rate.seen += 1.0;
    rate.accepted += accepted ? 1.0 : 0.0;
  };
  for (std::int32_t node = 1; node < tree.nodes(); ++node) {
    const auto n = static_cast<std::size_t>(node);
    if (!on_path(tree.parent[n])) continue;
    const bool accepted = on_path(node);
    if (tree.rank[n] == 0) {
      add(first_child_, accepted);
    } else {
      const double parent_prob = tree.path_prob[static_cast<std::size_t>(tree.parent[n])];
      add(later_[bin_of(parent_prob > 0.0 ? tree.value[n] / parent_prob : 0.0)], accepted);
    }
    const auto bin = draw_ == ChildDraw::coupled
                         ? std::min(static_cast<std::size_t>(tree.rank[n]), bins - 1)
                         : bin_of(static_cast<double>(tree.draft_prob[n]));
    add(known_[bin], accepted);
  }

  const auto rows_per_pass = static_cast<std::int32_t>(
      std::max<std::int64_t>(1, tree.size() / std::max<std::int64_t>(1, passes)));
  const double seconds = overhead_ + costs_.target.seconds(tree.nodes(), prefix_) +
                         static_cast<double>(passes) * costs_.draft.seconds(rows_per_pass, prefix_);
  const double tokens = static_cast<double>(path.size()) + 1.0;
  tokens_ = keep * tokens_ + tokens;
  seconds_ = keep * seconds_ + seconds;
  surplus_ = keep * surplus_ + tokens - seconds / costs_.target.seconds(1, prefix_);
  weight_ = keep * weight_ + 1.0;
  if (surplus_ >= 0.0) {
    next_wait_ = 1;
  } else if (weight_ > 1.5) {
    wait_ = next_wait_;
    next_wait_ = std::min(2 * next_wait_, longest_wait);
  }
}

std::int32_t AutoSize::chain_length(std::int32_t most) const {
  const double rate = first_child_.estimate(first_prior, first_weight);
  double best = 1.0 / costs_.target.seconds(1, prefix_);
  std::int32_t best_length = 0;
  double expected = 1.0, reach = 1.0;
  for (std::int32_t length = 1; length <= most; ++length) {
    reach *= rate;
    expected += reach;
    const double seconds = overhead_ + costs_.target.seconds(length + 1, prefix_) +
                           length * costs_.draft.seconds(1, prefix_);
    if (expected / seconds > best) {
      best = expected / seconds;
      best_length = length;
    }
  }
  return best_length;
}

double AutoSize::threshold() const { return std::clamp(node_cost(8), 1e-3, 0.5); }

}  // namespace coppice
