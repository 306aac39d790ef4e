#include "sizing/draft_start_policy.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "sizing/constants.h"

namespace coppice {
namespace {

using C = SizingConstants;

double left_of(double memory) { return std::exp(-1.0 / memory); }

}  // namespace

DraftStartPolicy::DraftStartPolicy(AcceptanceRule draw) : acceptance_(draw) {
  const AcceptanceCalibration usual(draw);
  for (std::size_t d = 0; d < depths; ++d) {
    usual_[d] = usual.position(0, static_cast<std::int32_t>(d) + 1);
  }
}

std::size_t DraftStartPolicy::class_of_depth(std::int32_t depth) {
  return std::min(static_cast<std::size_t>(depth), depths) - 1;
}

double DraftStartPolicy::chance(std::int32_t depth, double below) const {
  const std::size_t d = class_of_depth(depth);
  const Count& count = first_children_[d];
  const double judged = count.judged + C::usual_weight;
  const double mean = (count.accepted + C::usual_weight * usual_[d]) / judged;
  return std::max(0.0, mean - below * std::sqrt(mean * (1.0 - mean) / judged));
}

void DraftStartPolicy::record(const TokenTree& tree, std::span<const std::int32_t> path) {
  steps_ += 1.0;
  acceptance_.record(tree, path);
  acceptance_.fade(left_of(C::acceptance_memory));
  std::int32_t parent = 0;
  for (std::size_t step = 0; step <= path.size(); ++step) {
    const auto first = std::find(tree.parent.begin() + parent + 1, tree.parent.end(), parent);
    if (first == tree.parent.end()) return;
    const auto child = static_cast<std::int32_t>(first - tree.parent.begin());
    const bool accepted = step < path.size() && path[step] == child;
    Count& count = first_children_[class_of_depth(static_cast<std::int32_t>(step) + 1)];
    constexpr double memory = C::acceptance_memory;
    count.accepted = left_of(memory) * count.accepted + (accepted ? 1.0 : 0.0);
    count.judged = left_of(memory) * count.judged + 1.0;
    if (step < path.size()) parent = path[step];
  }
}

void DraftStartPolicy::record_useless() {
  steps_ += C::known_steps;
  first_children_.front().judged += C::known_steps;
}

DraftStartPolicy::Gain& DraftStartPolicy::faded_gain(std::int32_t texts) {
  const auto by_number = static_cast<std::size_t>(std::bit_width(static_cast<unsigned>(texts)) - 1);
  Gain& gain = gains_[std::min(by_number, gains_.size() - 1)];
  const double left = left_of(C::gain_memory * texts);
  gain.won *= left;
  gain.cost *= left;
  return gain;
}

void DraftStartPolicy::record_gain(std::int32_t texts, double won, double cost) {
  Gain& gain = faded_gain(texts);
  gain.won += won;
  gain.cost += cost;
}

void DraftStartPolicy::record_put_off(std::int32_t texts) {
  faded_gain(texts);
  tokens_since_probe_ += 1.0;
}

void DraftStartPolicy::record_prefill(double seconds, double by_table) {
  const double left = left_of(C::prefill_memory);
  prefill_seconds_ = left * prefill_seconds_ + seconds;
  prefill_by_table_ = left * prefill_by_table_ + by_table;
}

// Chains of all texts at once: what they bring and cost, as SequenceSizer prices a step.
void DraftStartPolicy::look(const Batch& batch, const CostTable& costs,
                            const CostCorrection* correction) {
  if (batch.step == looked_at_) return;
  looked_at_ = batch.step;
  const auto corrected = [&](Work work, double by_table, std::int32_t rows = 1) {
    return correction == nullptr ? by_table : correction->factor(work, rows) * by_table;
  };
  StepWork work;
  work.texts = batch.texts;
  work.kv_tokens = batch.kv_tokens;
  const double plain = corrected(plain_pass(batch.texts), costs.target_seconds(work), work.rows());
  plain_share_ = plain / batch.texts;
  work.drafting = batch.texts;
  struct Chain {
    double& gain;
    double tokens = 1.0, reach = 1.0;
    void grow(double chance, double cost) {
      tokens += reach *= chance;
      gain = std::max(gain, tokens / cost - 1.0);
    }
  } expected{expected_}, cautious{cautious_}, at_best{at_best_};
  expected_ = cautious_ = at_best_ = -1.0;
  for (std::int32_t depth = 1; depth <= C::most_chain_expected; ++depth) {
    work.passes = depth;
    work.turns = std::int64_t{depth} * batch.texts;
    work.nodes = depth * batch.texts;
    const double seconds =
        corrected(tree_pass(batch.texts), costs.target_seconds(work), work.rows()) +
        corrected(Work::host, CostTable::host_seconds(work)) +
        corrected(Work::first_draft, costs.first_draft_seconds(work)) +
        (depth - 1) * corrected(Work::draft, costs.later_draft_seconds(work));
    expected.grow(chance(depth, 0.0), seconds / plain);
    cautious.grow(chance(depth, 1.0), seconds / plain);
    at_best.grow(C::nearly_sure, seconds / plain);
  }
  const Gain& seen = faded_gain(batch.texts);
  const double prior = C::gain_prior * batch.texts;
  for (double* const gain : {&expected_, &cautious_}) {
    *gain = (prior * *gain + seen.won) / (prior + seen.cost);
  }
}

DraftStartPolicy::Begin DraftStartPolicy::decide(const Batch& batch, const Text& text,
                                                 const CostTable& costs,
                                                 const CostCorrection* correction) {
  look(batch, costs, correction);
  const double length = static_cast<double>(batch.kv_tokens) / batch.texts;
  const double by_clock = (C::usual_prefill * plain_share_ + prefill_seconds_) /
                          (C::usual_prefill * plain_share_ + prefill_by_table_);
  const auto price = [&](double rows) {
    return by_clock * prefill_seconds(costs, rows, length) / plain_share_;
  };
  const auto missing = static_cast<double>(batch.missing_rows);
  const double left = std::min(text.tokens_left, C::tokens_ahead);
  // One pass computes the prompts of all who begin.
  const double prefill =
      text.missing_rows == 0.0 ? 0.0 : price(missing) * text.missing_rows / missing;
  const bool cheap = prefill <= C::cheap_prefill * left, known = steps_ >= C::known_steps;
  const double gain = (cheap || !known ? expected_ : cautious_) * left - prefill;
  if ((cheap || known) && gain >= -C::tolerated_share * left) return Begin::now;
  const double probing = price(text.probe_rows);
  if (text.probe_rows == 0 || at_best_ * left <= probing) return Begin::later;
  const bool promising = !known && gain > 0.0;
  const double work =
      tokens_since_probe_ + std::min<double>(static_cast<double>(batch.tokens_left),
                                             std::int64_t{C::tokens_ahead} * batch.texts);
  const double at_stake = probing + C::probing_loss * C::known_steps;
  const bool spare = batch.probes == 0 && C::probing_share * work >= at_stake;
  if (promising ? batch.probes < std::max(1, batch.texts / C::texts_per_probe) : spare) {
    tokens_since_probe_ = 0.0;
    return Begin::as_probe;
  }
  return Begin::later;
}

}  // namespace coppice
