#include "sizing/auto_size.h"

#include <algorithm>
#include <limits>

#include "sizing/constants.h"

namespace coppice {
namespace {

using C = SizingConstants;

// Draft rows of a pass, on average, when a tree of `size` nodes took `passes`.
std::int32_t rows_per_pass(std::int32_t size, std::int64_t passes) {
  return static_cast<std::int32_t>(
      std::max<std::int64_t>(1, size / std::max<std::int64_t>(1, passes)));
}

}  // namespace

AutoSize::AutoSize(const CostTable& costs, ChildDraw draw, std::int32_t most)
    : costs_(costs), draw_(draw), most_(std::min(most, C::most_planned)), calibration_(draw) {}

// What the first node costs over plain decoding is sunk once a step speculates.
double AutoSize::hull_cost(std::int32_t size) const {
  const std::int32_t rows = std::max(size, 1) + 1;
  return tokens_per_second_ *
         (C::node_seconds + verify_scale_ * (costs_.target.hull_seconds(rows + 1, prefix_) -
                                             costs_.target.hull_seconds(rows, prefix_)));
}

double AutoSize::node_cost(std::int32_t size) const {
  // Where trees are cut in hindsight, it is then that steps of the costs count.
  if (draw_ != ChildDraw::sampled) return hull_cost(size);
  const auto n = static_cast<std::size_t>(size);
  return n < plan_.node_prices.size() ? plan_.node_prices[n]
                                      : std::numeric_limits<double>::infinity();
}

void AutoSize::plan() {
  verify_prices_.resize(static_cast<std::size_t>(most_) + 1);
  pass_prices_.resize(verify_prices_.size());
  for (std::int32_t n = 0; n <= most_; ++n) {
    verify_prices_[static_cast<std::size_t>(n)] = verify_cost(n);
    pass_prices_[static_cast<std::size_t>(n)] = pass_cost(std::max(1, n));
  }
  planner_.replan(calibration_, {verify_prices_, pass_prices_}, plan_);
}

double AutoSize::pass_cost(std::int32_t rows) const {
  return tokens_per_second_ * draft_seconds(rows);
}

double AutoSize::verify_cost(std::int32_t size) const {
  return tokens_per_second_ * verify_seconds(size + 1);
}

void AutoSize::begin_text(double fit) {
  if (fit < C::useless_fit) {
    surplus_ = -C::tolerated_loss;
    wait_ = C::useless_wait;
    next_wait_ = C::longest_wait;
  } else {
    surplus_ = C::first_credit;
  }
}

bool AutoSize::begin_step(std::int32_t prefix) {
  prefix_ = prefix;
  // A second is worth what it brings at the present rate: at the best rate, growth that just
  // pays at this price leaves the rate unchanged (Dinkelbach, 1967).
  tokens_per_second_ = 1.0 / plain_seconds();
  if (seconds_ > 0.0) tokens_per_second_ = std::max(tokens_per_second_, tokens_ / seconds_);
  if (draw_ == ChildDraw::sampled && most_ > 0 && wait_ == 0 && --steps_to_plan_ < 0) {
    plan();
    steps_to_plan_ = ++plans_ < C::first_plans ? 0 : C::plan_every - 1;
  }
  return wait_ == 0;
}

void AutoSize::record_plain() {
  if (wait_ > 0) --wait_;
}

void AutoSize::record(const TokenTree& tree, std::span<const std::int32_t> path,
                      std::int64_t passes) {
  calibration_.record(tree, path);
  const double seconds =
      C::step_overhead_seconds + verify_seconds(tree.nodes()) +
      static_cast<double>(passes) * draft_seconds(rows_per_pass(tree.size(), passes));
  const double tokens = static_cast<double>(path.size()) + 1.0;
  tokens_ = C::discount * tokens_ + tokens;
  seconds_ = C::discount * seconds_ + seconds;
  surplus_ = C::discount * surplus_ + tokens - seconds / plain_seconds();
  // Draft passes after which nothing seemed worth a row: prices are against it for now.
  barren_ = tree.size() == 0 ? barren_ + 1 : 0;
  if (surplus_ > -C::tolerated_loss && barren_ < C::most_barren) {
    if (tree.size() > 0) next_wait_ = C::first_wait;
  } else {
    barren_ = 0;
    wait_ = next_wait_;
    next_wait_ = std::min(2 * next_wait_, C::longest_wait);
  }
}

void AutoSize::observe(std::int32_t rows, double target_seconds, std::int64_t passes,
                       double draft_seconds_taken) {
  // A single pass may have been interrupted for long: it counts as twice the usual at most.
  const auto follow = [&](double& scale, double taken, double by_table) {
    scale += C::clock_weight *
             (std::clamp(taken / by_table, scale / C::most_clock_step, C::most_clock_step * scale) -
              scale);
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
  const double rate = calibration_.first_child(C::first_child_prior, C::first_child_weight);
  double best = 0.0;
  std::int32_t best_length = 1;
  double expected = 1.0, reach = 1.0;
  for (std::int32_t length = 1; length <= most; ++length) {
    reach *= rate;
    expected += reach;
    const double seconds =
        C::step_overhead_seconds + verify_seconds(length + 1) + length * draft_seconds(1);
    if (expected / seconds > best) {
      best = expected / seconds;
      best_length = length;
    }
  }
  return best_length;
}

double AutoSize::threshold() const { return std::clamp(hull_cost(8), 1e-3, 0.5); }

}  // namespace coppice
