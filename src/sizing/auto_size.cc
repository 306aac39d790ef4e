#include "sizing/auto_size.h"

#include <algorithm>

namespace coppice {
namespace {

using C = SizingConstants;

// Draft rows of a pass, on average, when a tree of `size` nodes took `passes`.
std::int32_t rows_per_pass(std::int32_t size, std::int64_t passes) {
  return static_cast<std::int32_t>(
      std::max<std::int64_t>(1, size / std::max<std::int64_t>(1, passes)));
}

// What a step of a tree of `size` nodes costs beside the models' passes.
double host_seconds(std::int32_t size) { return C::step_overhead_seconds + C::node_seconds * size; }

// Increments of the lower convex hull of `costs` from its second value on (Andrew's monotone
// chain): what the first node costs is sunk once a step speculates.
void hull_increments(std::span<const double> costs, std::vector<std::size_t>& hull,
                     std::vector<double>& increments) {
  hull.clear();
  for (std::size_t n = 1; n < costs.size(); ++n) {
    while (hull.size() >= 2) {
      const std::size_t a = hull[hull.size() - 2], b = hull.back();
      const double chord = costs[a] + (costs[n] - costs[a]) * static_cast<double>(b - a) /
                                          static_cast<double>(n - a);
      if (costs[b] < chord) break;
      hull.pop_back();
    }
    hull.push_back(n);
  }
  increments.assign(costs.size(), 0.0);
  for (std::size_t h = 1; h < hull.size(); ++h) {
    const double step =
        (costs[hull[h]] - costs[hull[h - 1]]) / static_cast<double>(hull[h] - hull[h - 1]);
    for (std::size_t n = hull[h - 1]; n < costs.size(); ++n) increments[n] = step;
  }
  if (increments.size() > 1) increments[0] = increments[1];
}

// By n, the least slope of a line from costs[n] to a later one: along the lower hull of what is
// behind, which is built from its end.
void least_increments(std::span<const double> costs, std::vector<std::size_t>& hull,
                      std::vector<double>& least) {
  hull.clear();
  least.assign(costs.size(), 0.0);
  const auto slope = [&](std::size_t a, std::size_t b) {
    return (costs[b] - costs[a]) / static_cast<double>(b - a);
  };
  for (std::size_t n = costs.size(); n-- > 0;) {
    while (hull.size() >= 2 && slope(n, hull.back()) >= slope(n, hull[hull.size() - 2])) {
      hull.pop_back();
    }
    if (!hull.empty()) least[n] = slope(n, hull.back());
    hull.push_back(n);
  }
  if (costs.size() > 1) least.back() = least[costs.size() - 2];
}

}  // namespace

AutoSize::AutoSize(const CostTable& costs, CostCorrection* correction, ChildDraw draw,
                   std::int32_t most)
    : costs_(costs),
      correction_(correction),
      most_(std::min(most, C::most_priced)),
      calibration_(draw) {}

double AutoSize::plain_seconds() const {
  return corrected(Work::plain, costs_.target.seconds(1, prefix_));
}

// Prices move slowly, and there are many of them.
void AutoSize::fix_prices(bool hope) {
  const std::int32_t most =
      std::max(C::longest_chain, std::min(most_, C::priced_ahead * largest_tree_));
  const double plain = plain_seconds();
  const double host = corrected(Work::host, 1.0) / plain,
               pass = corrected(Work::draft, 1.0) / plain;
  verify_.resize(static_cast<std::size_t>(most) + 1);
  pass_.resize(verify_.size());
  for (std::int32_t n = 0; n <= most; ++n) {
    const double factor = hope ? correction_->hopeful_factor(Work::verify, n + 1)
                               : corrected(Work::verify, 1.0, n + 1);
    const auto i = static_cast<std::size_t>(n);
    verify_[i] = factor / plain * costs_.target.seconds(n + 1, prefix_) + host * host_seconds(n);
    pass_[i] = pass * costs_.draft.seconds(std::max(1, n), prefix_);
  }
  hull_increments(verify_, corners_, hull_);
  least_increments(verify_, corners_, least_);
}

double AutoSize::node_cost(std::int32_t size) const {
  return rate_ * hull_[std::min(static_cast<std::size_t>(size), hull_.size() - 1)];
}

double AutoSize::least_node_cost(std::int32_t size) const {
  return rate_ * least_[std::min(static_cast<std::size_t>(size), least_.size() - 1)];
}

double AutoSize::pass_cost(std::int32_t rows) const {
  return rate_ * pass_[std::min(static_cast<std::size_t>(rows), pass_.size() - 1)];
}

double AutoSize::verify_cost(std::int32_t size) const {
  const auto n = static_cast<std::size_t>(size);
  if (n < verify_.size()) return rate_ * verify_[n];
  return rate_ * (verify_.back() + static_cast<double>(n + 1 - verify_.size()) * hull_.back());
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
  // Time is worth what it brings at the present rate: at the best rate, growth that just pays at
  // this price leaves the rate unchanged (Dinkelbach, 1967).
  rate_ = spent_ > 0.0 ? std::max(1.0, tokens_ / spent_) : 1.0;
  const bool speculate = wait_ == 0;
  const bool hope = speculate && correction_ != nullptr && ++steps_ % C::hope_every == 0;
  if (hope || (speculate ? --steps_to_prices_ < 0 : verify_.empty())) {
    fix_prices(hope);
    steps_to_prices_ = hope || ++priced_ < C::first_prices ? 0 : C::price_every - 1;
  }
  // Nor is a plain step that may be cheaper than it is taken for ever seen else.
  if (hope && spent_ > 0.0) {
    const double plain =
        correction_->hopeful_factor(Work::plain) / correction_->factor(Work::plain);
    return tokens_ / spent_ * plain >= 1.0;
  }
  return speculate;
}

void AutoSize::record_plain() {
  if (wait_ > 0) --wait_;
}

// In plain steps. What was hoped for is no part of it.
double AutoSize::step_cost(std::int32_t size, std::int64_t passes) const {
  double seconds = corrected(Work::verify, costs_.target.seconds(size + 1, prefix_), size + 1) +
                   corrected(Work::host, host_seconds(size));
  if (passes > 0) {
    const std::int32_t rows = rows_per_pass(size, passes);
    seconds += corrected(Work::first_draft, costs_.first_draft_seconds(prefix_)) +
               static_cast<double>(passes - 1) *
                   corrected(Work::draft, costs_.draft.seconds(rows, prefix_));
  }
  return seconds / plain_seconds();
}

void AutoSize::record(const TokenTree& tree, std::span<const std::int32_t> path,
                      std::int64_t passes) {
  calibration_.record(tree, path);
  const double cost = step_cost(tree.size(), passes);
  const double tokens = static_cast<double>(path.size()) + 1.0;
  tokens_ = C::discount * tokens_ + tokens;
  spent_ = C::discount * spent_ + cost;
  surplus_ = C::discount * surplus_ + tokens - cost;
  largest_tree_ = std::max(largest_tree_, tree.size());
  // Draft passes after which nothing seemed worth a row: prices are against it for now.
  barren_ = tree.size() == 0 ? barren_ + 1 : 0;
  if (surplus_ > -C::tolerated_loss && barren_ < C::most_barren) {
    if (tree.size() > 0) next_wait_ = C::first_wait;
  } else {
    barren_ = 0;
    steps_to_prices_ = 0;
    wait_ = next_wait_;
    next_wait_ = std::min(2 * next_wait_, C::longest_wait);
  }
}

void AutoSize::observe(std::int32_t rows, std::int64_t passes, const StepSeconds& seconds,
                       bool disturbed) {
  if (correction_ == nullptr) return;
  disturbed_ = disturbed ? disturbed_ + 1 : 0;
  if (disturbed_ > 0 && disturbed_ <= C::most_disturbed) return;
  const Work judged = passes == 0 && rows == 1 ? Work::plain : Work::verify;
  correction_->observe(judged, rows, seconds.verify, costs_.target.seconds(rows, prefix_));
  if (passes > 0) {
    correction_->observe(Work::first_draft, 1, seconds.first_draft,
                         costs_.first_draft_seconds(prefix_));
    const std::int32_t drafted = rows_per_pass(rows - 1, passes);
    correction_->observe(Work::draft, 1, seconds.draft - seconds.first_draft,
                         static_cast<double>(passes - 1) * costs_.draft.seconds(drafted, prefix_));
    correction_->observe(Work::host, 1, seconds.drawing + seconds.construction + seconds.judging,
                         host_seconds(rows - 1));
  }
  correction_->end_step();
}

double AutoSize::threshold() const { return std::clamp(rate_ * hull_[8], 1e-3, 0.5); }

}  // namespace coppice
