#include "sizing/step_prices.h"

#include <algorithm>
#include <span>

#include "sizing/constants.h"

namespace coppice {
namespace {

using C = SizingConstants;

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

double ClockedCosts::plain(std::int32_t texts, std::int32_t prompt_rows,
                           std::int64_t kv_tokens) const {
  const std::int32_t rows = texts + prompt_rows;
  return factor(plain_pass(rows), rows) * table.target.seconds(rows, texts, kv_tokens);
}

double ClockedCosts::step(const StepWork& work) const {
  double seconds = factor(tree_pass(work.texts), work.rows()) * table.target_seconds(work);
  if (work.passes == 0) return seconds;
  seconds += factor(Work::host) * CostTable::host_seconds(work) +
             factor(Work::first_draft) * table.first_draft_seconds(work);
  return seconds + static_cast<double>(work.passes - 1) * factor(Work::draft) *
                       table.later_draft_seconds(work);
}

bool StepPrices::is_due(const Step& step, std::int32_t most, bool optimistic) {
  if (optimistic || step.texts != step_.texts) return true;
  if (renewal_.follows_rows &&
      (step.other_rows != step_.other_rows || static_cast<std::size_t>(most) >= verify_.size())) {
    return true;
  }
  return --steps_to_renewal_ < 0;
}

void StepPrices::fix(const Step& step, std::int32_t most, bool optimistic) {
  if (!is_due(step, most, optimistic)) return;
  steps_to_renewal_ = optimistic || ++renewals_ < renewal_.first ? 0 : C::price_every - 1;
  step_ = step;
  plain_share_ = costs_.plain(step.texts, step.prompt_rows, step.kv_tokens) / step.texts;
  draft_factor_ = costs_.factor(Work::draft);
  host_factor_ = costs_.factor(Work::host);
  StepWork first;
  first.add(0, 1, step.length());
  cold_ = std::max(0.0, costs_.factor(Work::first_draft) * costs_.table.first_draft_seconds(first) -
                            draft_factor_ * costs_.table.draft.seconds(2, step.length()));
  verify_.resize(static_cast<std::size_t>(most) + 1);
  const Work work = tree_pass(step.texts);
  for (std::int32_t n = 0; n <= most; ++n) {
    const std::int32_t rows = step.texts + step.other_rows + step.alike * n;
    const double factor = optimistic && costs_.correction != nullptr
                              ? costs_.correction->optimistic_factor(work, rows)
                              : costs_.factor(work, rows);
    verify_[static_cast<std::size_t>(n)] =
        factor * costs_.table.target.seconds(rows, step.texts, step.kv_tokens) / step.alike +
        host_factor_ * C::node_seconds * n;
  }
  least_increments(verify_, corners_, least_);
}

void StepPrices::set_rate(double rate, double weight) {
  tokens_per_second_ = std::max(1.0, rate) / (weight * plain_share_);
}

void StepPrices::record(double tokens, double taken) {
  tokens_ = C::discount * tokens_ + tokens;
  spent_ = C::discount * spent_ + taken;
}

bool StepPrices::plain_may_pay(std::int32_t texts) const {
  const Work work = plain_pass(texts);
  return rate() * costs_.correction->optimistic_factor(work, texts) <
         costs_.correction->factor(work, texts);
}

double StepPrices::least_node_cost(std::int32_t size) const {
  return tokens_per_second_ * least_[std::min(static_cast<std::size_t>(size), least_.size() - 1)];
}

// The first pass sees what the last step brought: the last accepted token and the root.
double StepPrices::pass_cost(std::int32_t rows, std::int32_t pass) const {
  const std::int32_t all = step_.alike * rows, seen = pass == 0 ? 2 * all : all;
  const std::int32_t texts = std::min(all, step_.texts);
  double seconds =
      draft_factor_ * costs_.table.draft.seconds(seen, texts, std::int64_t{texts} * step_.length());
  if (pass == 0) seconds += cold_ + all * host_factor_ * C::step_overhead_seconds;
  return tokens_per_second_ * seconds / step_.alike;
}

double StepPrices::verify_cost(std::int32_t size) const {
  const auto n = static_cast<std::size_t>(size);
  if (n < verify_.size()) return tokens_per_second_ * verify_[n];
  return tokens_per_second_ *
         (verify_.back() + static_cast<double>(n + 1 - verify_.size()) * least_.back());
}

}  // namespace coppice
