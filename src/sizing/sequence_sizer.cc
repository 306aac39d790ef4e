#include "sizing/sequence_sizer.h"

#include <algorithm>
#include <vector>

#include "drafting/batch_growth.h"

namespace coppice {

using C = SizingConstants;

SequenceSizer::SequenceSizer(const CostTable& costs, CostCorrection* correction,
                             AcceptanceRule draw, std::int32_t most)
    : costs_{costs, correction},
      most_(std::min(most, C::most_priced)),
      calibration_(draw),
      prices_(costs_, {.first = C::first_prices}) {}

void SequenceSizer::begin_text(double likelihood) {
  if (likelihood < C::useless_likelihood) {
    surplus_ = -C::tolerated_loss;
    wait_ = C::useless_wait;
    next_wait_ = C::longest_wait;
  } else {
    surplus_ = C::first_credit;
    wait_ = 0;
  }
}

void SequenceSizer::give_up() {
  barren_ = 0;
  prices_.renew();
  wait_ = next_wait_;
  next_wait_ = std::min(2 * wait_, C::longest_wait);
}

void SequenceSizer::fix_prices(const StepPrices::Step& step, bool optimistic) {
  prices_.fix(step, std::max(C::longest_chain, std::min(most_, C::priced_ahead * largest_tree_)),
              optimistic);
}

bool SequenceSizer::begin_alone(const StepPrices::Step& step, bool prices) {
  length_ = step.length();
  progress_before_ = -1.0;
  const bool speculate = wait_ == 0;
  const bool optimistic =
      speculate && costs_.correction != nullptr && ++steps_ % C::optimism_every == 0;
  if (speculate || prices || !prices_.are_for(step.texts)) fix_prices(step, optimistic);
  // Time is worth what it brings at the present rate: at the best rate, growth that just pays at
  // this price leaves the rate unchanged (Dinkelbach, 1967).
  prices_.set_rate(prices_.rate(), 1.0);
  return optimistic && prices_.has_rate() ? !prices_.plain_may_pay(step.texts) : speculate;
}

void SequenceSizer::record_plain() {
  if (wait_ > 0) --wait_;
}

double SequenceSizer::cost_of(const StepWork& work) const {
  const double beyond =
      costs_.step(work) / costs_.plain(work.texts, work.prompt_rows, work.kv_tokens) - 1.0;
  return 1.0 + beyond * work.texts / std::max(1, work.drafting);
}

void SequenceSizer::record_without_draft(const TokenTree& tree, std::span<const std::int32_t> path,
                                         const StepWork& work) {
  if (work.texts > 1) return;
  largest_tree_ = std::max(largest_tree_, tree.size());
  prices_.record(static_cast<double>(path.size()) + 1.0, cost_of(work));
}

// What was hoped for is no part of the cost.
double SequenceSizer::record(const TokenTree& tree, std::span<const std::int32_t> path,
                             const StepWork& work) {
  const double tokens = static_cast<double>(path.size()) + 1.0;
  const double cost = cost_of(work);
  calibration_.record(tree, path);
  ++recorded_;
  largest_tree_ = std::max(largest_tree_, tree.size());
  if (work.texts > 1) {
    if (tried_) {
      idle_at_most_ = path.empty() ? std::min(2 * idle_at_most_, C::longest_wait) : C::retry_every;
    }
    return cost;
  }
  prices_.record(tokens, cost);
  surplus_ = C::discount * surplus_ + tokens - cost;
  // Draft passes after which nothing seemed worth a row: prices are against it for now.
  barren_ = tree.size() == 0 ? barren_ + 1 : 0;
  if (surplus_ > -C::tolerated_loss && barren_ < C::most_barren) {
    if (tree.size() > 0) next_wait_ = C::first_wait;
  } else {
    give_up();
  }
  return cost;
}

void SequenceSizer::expect(const AcceptanceCalibration& seen) {
  calibration_.expect(seen, recorded_ < C::others_know_better);
}

bool SequenceSizer::begin_apart(const StepPrices::Step& step, double rate,
                                const GrowthPrior& tree) {
  fix_prices(step, false);
  prices_.set_rate(rate, tree.weight);
  BatchGrowth growth(prices_);
  growth.begin(tree.most);
  std::vector<char> chosen;
  GrowthPrior own = tree;
  own.weight = 1.0;
  growth.choose({&own, 1}, chosen);
  return chosen[0] != 0;
}

bool SequenceSizer::is_due(std::int64_t step) const {
  return step % C::retry_every == 0 && idle_ >= idle_at_most_;
}

void SequenceSizer::begin_among_others(bool speculates, bool tried) {
  tried_ = tried;
  idle_ = speculates ? 0 : idle_ + 1;
}

double SequenceSizer::speed() const {
  double tokens = 1.0, reach = 1.0;
  for (std::int32_t depth = 1; depth <= C::usual_chain; ++depth) {
    tokens += reach *= calibration_.position(0, depth);
  }
  return tokens;
}

double SequenceSizer::behind(double progress, std::int32_t tokens_left) {
  if (progress_before_ < 0.0) {
    progress_before_ = progress;
    left_before_ = tokens_left;
  }
  return tokens_left / std::max(1.0, left_before_ - (progress - progress_before_));
}

double SequenceSizer::threshold() const {
  return std::clamp(prices_.least_node_cost(8), 1e-3, 0.5);
}

}  // namespace coppice
