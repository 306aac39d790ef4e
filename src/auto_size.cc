#include "auto_size.h"

#include <algorithm>
#include <cmath>

namespace coppice {
namespace {

constexpr double keep = 0.96;  // discount of sums per speculative step
// Speculation is given up when it has lost this many tokens against plain decoding (past gains
// count, discounted), and tried again after waits of plain steps that double.
constexpr double tolerated_loss = 3.0;
constexpr std::int32_t first_wait = 8, longest_wait = 256;
constexpr std::int32_t most_barren = 3;
// A draft that gave the prompt's tokens less than this on average is not tried at once; any
// other may lose this many tokens before its luck counts against it.
constexpr double useless_fit = 0.02, first_credit = 3.0;
// Its first trial comes after this many plain steps.
constexpr std::int32_t useless_wait = 160;
// Priors and their weights in pseudo-observations: what the shipped pair does on 48 prompts, a
// start for any pair. At temperature 0.8 a first child is accepted by 0.56 at draft probability
// 0.01, 0.74 at 0.4, 0.91 at 0.93, and a second one, after the first was refused, by 0.11 of
// whatever probability: in sampled trees depth pays sooner than breadth.
constexpr std::array<double, 3> unknown_prior = {0.75, 0.12, 0.05};
constexpr double unknown_weight = 8.0, known_weight = 6.0;

// Draft rows of a pass, on average, when a tree of `size` nodes took `passes`.
std::int32_t rows_per_pass(std::int32_t size, std::int64_t passes) {
  return static_cast<std::int32_t>(
      std::max<std::int64_t>(1, size / std::max<std::int64_t>(1, passes)));
}

}  // namespace

AutoSize::AutoSize(const CostTable& costs, ChildDraw draw, double step_overhead_seconds)
    : costs_(costs), draw_(draw), overhead_(step_overhead_seconds) {}

// Finer towards 0 and 1, where small differences decide.
std::size_t AutoSize::bin_of(double probability) {
  constexpr std::array<double, bins - 1> edges = {0.02, 0.05, 0.1, 0.2,  0.35, 0.5,
                                                  0.65, 0.8,  0.9, 0.96, 0.99};
  return static_cast<std::size_t>(std::upper_bound(edges.begin(), edges.end(), probability) -
                                  edges.begin());
}

std::size_t AutoSize::class_of(std::int32_t rank) {
  return std::min(static_cast<std::size_t>(rank), rank_classes - 1);
}

double AutoSize::prior(std::size_t rank_class, double draft_prob) const {
  const double p = draft_prob;
  if (draw_ == ChildDraw::top) {
    return rank_class == 0 ? 1.0 - std::pow(1.0 - p, 1.6) : 0.85 * p;
  }
  if (rank_class == 0) return 0.57 + 0.4 * p;
  return rank_class == 1 ? 0.09 + 0.15 * p : 0.05;
}

double AutoSize::position_acceptance(std::int32_t rank, double left) const {
  const std::size_t c = class_of(rank);
  const double rate = unknown_[c].estimate(unknown_prior[c], unknown_weight);
  return c == 0 ? rate : rate * (0.4 + 0.6 * left);
}

double AutoSize::child_acceptance(std::int32_t rank, double draft_prob) const {
  const std::size_t c = class_of(rank);
  return known_[c][bin_of(draft_prob)].estimate(prior(c, draft_prob), known_weight);
}

double AutoSize::node_cost(std::int32_t size) const {
  // What the first node costs over plain decoding is sunk once a step speculates.
  const std::int32_t rows = std::max(size, 1) + 1;
  return tokens_per_second_ * verify_scale_ *
         (costs_.target.hull_seconds(rows + 1, prefix_) -
          costs_.target.hull_seconds(rows, prefix_));
}

double AutoSize::pass_cost(std::int32_t rows) const {
  return tokens_per_second_ * draft_seconds(rows);
}

double AutoSize::verify_cost(std::int32_t size) const {
  return tokens_per_second_ * verify_seconds(size + 1);
}

void AutoSize::begin_text(double fit) {
  if (fit < useless_fit) {
    surplus_ = -tolerated_loss;
    wait_ = useless_wait;
    next_wait_ = longest_wait;
  } else {
    surplus_ = first_credit;
  }
}

bool AutoSize::begin_step(std::int32_t prefix) {
  prefix_ = prefix;
  // A second is worth what it brings at the present rate: at the best rate, growth that just
  // pays at this price leaves the rate unchanged (Dinkelbach, 1967).
  tokens_per_second_ = 1.0 / plain_seconds();
  if (seconds_ > 0.0) tokens_per_second_ = std::max(tokens_per_second_, tokens_ / seconds_);
  // The most probable children are looked at because they look best: their estimates are high.
  // A quarter on prices is what served best at temperature 0.
  if (draw_ == ChildDraw::top) tokens_per_second_ *= 1.25;
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
    const std::size_t c = class_of(tree.rank[n]);
    add(unknown_[c], accepted);
    add(known_[c][bin_of(static_cast<double>(tree.draft_prob[n]))], accepted);
  }

  const double seconds =
      overhead_ + verify_seconds(tree.nodes()) +
      static_cast<double>(passes) * draft_seconds(rows_per_pass(tree.size(), passes));
  const double tokens = static_cast<double>(path.size()) + 1.0;
  tokens_ = keep * tokens_ + tokens;
  seconds_ = keep * seconds_ + seconds;
  surplus_ = keep * surplus_ + tokens - seconds / plain_seconds();
  // Draft passes after which nothing seemed worth a row: prices are against it for now.
  barren_ = tree.size() == 0 ? barren_ + 1 : 0;
  if (surplus_ > -tolerated_loss && barren_ < most_barren) {
    if (tree.size() > 0) next_wait_ = first_wait;
  } else {
    barren_ = 0;
    wait_ = next_wait_;
    next_wait_ = std::min(2 * next_wait_, longest_wait);
  }
}

void AutoSize::observe(std::int32_t rows, double target_seconds, std::int64_t passes,
                       double draft_seconds_taken) {
  constexpr double weight = 0.1;
  // A single pass may have been interrupted for long: it counts as twice the usual at most.
  const auto follow = [&](double& scale, double taken, double by_table) {
    scale += weight * (std::clamp(taken / by_table, 0.5 * scale, 2.0 * scale) - scale);
  };
  follow(rows == 1 ? plain_scale_ : verify_scale_, target_seconds,
         costs_.target.seconds(rows, prefix_));
  if (passes > 0) {
    follow(draft_scale_, draft_seconds_taken,
           static_cast<double>(passes) *
               costs_.draft.seconds(rows_per_pass(rows - 1, passes), prefix_));
  }
}

std::int32_t AutoSize::chain_length(std::int32_t most) const {
  const double rate = position_acceptance(0, 1.0);
  double best = 0.0;
  std::int32_t best_length = 1;
  double expected = 1.0, reach = 1.0;
  for (std::int32_t length = 1; length <= most; ++length) {
    reach *= rate;
    expected += reach;
    const double seconds = overhead_ + verify_seconds(length + 1) + length * draft_seconds(1);
    if (expected / seconds > best) {
      best = expected / seconds;
      best_length = length;
    }
  }
  return best_length;
}

double AutoSize::threshold() const { return std::clamp(node_cost(8), 1e-3, 0.5); }

}  // namespace coppice
