#include "auto_size.h"

#include <algorithm>
#include <cmath>

namespace coppice {
namespace {

constexpr double keep = 0.93;        // discount of sums per speculative step
constexpr std::int32_t longest_wait = 64;
constexpr double prior_weight = 4.0;  // pseudo-observations per bin

}  // namespace

AutoSize::AutoSize(const CostTable& costs, double step_overhead_seconds)
    : costs_(costs), overhead_(step_overhead_seconds) {}

int AutoSize::bin_of(double value) {
  if (!(value > 0.0)) return bins - 1;
  return std::clamp(static_cast<int>(-2.0 * std::log2(value)), 0, bins - 1);
}

// The prior says what DySpec assumes: a position is accepted as often as its value says.
double AutoSize::gain(const Bins& table, double value) {
  const Bin& bin = table[static_cast<std::size_t>(bin_of(value))];
  const double ratio = (bin.accepted + prior_weight * 0.8 * value) /
                       (bin.seen + prior_weight);
  return ratio;
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

bool AutoSize::begin_step(std::int32_t prefix, std::int32_t draft_lag) {
  prefix_ = prefix;
  const double plain = costs_.target.seconds(1, prefix);
  // A second is worth what it brings at the present rate: at the best rate, growth that just
  // pays at this price leaves the rate unchanged (Dinkelbach's fractional programming).
  tokens_per_second_ = 1.0 / plain;
  if (seconds_ > 0.0) tokens_per_second_ = std::max(tokens_per_second_, tokens_ / seconds_);
  if (wait_ > 0) return false;
  // A long lag makes the draft's first pass dear: it must be worth a few plain steps.
  (void)draft_lag;
  return true;
}

void AutoSize::record_plain() {
  if (wait_ > 0) --wait_;
}

void AutoSize::record(const TokenTree& tree, std::span<const std::int32_t> path,
                      std::int64_t passes) {
  std::size_t next = 0;
  for (std::int32_t node = 1; node < tree.nodes(); ++node) {
    const auto n = static_cast<std::size_t>(node);
    const bool accepted = std::find(path.begin(), path.end(), node) != path.end();
    Bin& position = positions_[static_cast<std::size_t>(bin_of(tree.value[n]))];
    Bin& probability = nodes_[static_cast<std::size_t>(bin_of(tree.path_prob[n]))];
    position.seen += 1.0;
    probability.seen += 1.0;
    if (accepted) {
      position.accepted += 1.0;
      probability.accepted += 1.0;
    }
    const std::int32_t parent = tree.parent[n];
    const bool parent_accepted =
        parent == 0 || std::find(path.begin(), path.end(), parent) != path.end();
    if (parent_accepted && tree.rank[n] == 0) {
      chain_tried_ += 1.0;
      if (accepted) chain_accepted_ += 1.0;
    }
  }
  (void)next;

  const double seconds = overhead_ + costs_.target.seconds(tree.nodes(), prefix_) +
                         static_cast<double>(passes) *
                             costs_.draft.seconds(std::max(1, tree.size() / std::max<int>(1, static_cast<int>(passes))), prefix_);
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
  const double rate = chain_accepted_ / chain_tried_;
  const double plain = costs_.target.seconds(1, prefix_);
  double best = 1.0 / plain;
  std::int32_t best_length = 0;
  double expected = 1.0, reach = 1.0;
  for (std::int32_t k = 1; k <= most; ++k) {
    reach *= rate;
    expected += reach;
    const double seconds = overhead_ + costs_.target.seconds(k + 1, prefix_) +
                           k * costs_.draft.seconds(1, prefix_);
    if (expected / seconds > best) {
      best = expected / seconds;
      best_length = k;
    }
  }
  return best_length;
}

double AutoSize::threshold() const { return std::clamp(node_cost(8), 1e-3, 0.5); }

}  // namespace coppice
