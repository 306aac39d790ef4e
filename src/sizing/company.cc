#include "sizing/company.h"

#include <algorithm>
#include <cmath>

#include "sizing/cost_table.h"

namespace coppice {

using C = SizingConstants;

void DraftDemand::record(const ByPass& worth, const ByCrowd& turns, double left) {
  for (std::size_t c = 0; c < crowds; ++c) {
    for (std::size_t k = 0; k < passes; ++k) {
      const bool pays = worth[k] >= turns[c];
      comes[c][k] = static_cast<float>(left) * comes[c][k] + (pays ? 1.0f : 0.0f);
      gains[c][k] =
          static_cast<float>(left) * gains[c][k] + (pays ? static_cast<float>(worth[k]) : 0.0f);
    }
  }
}

void DraftDemand::add(const DraftDemand& other, double share) {
  const auto by = static_cast<float>(share);
  for (std::size_t c = 0; c < crowds; ++c) {
    for (std::size_t k = 0; k < passes; ++k) {
      comes[c][k] += by * other.comes[c][k];
      gains[c][k] += by * other.gains[c][k];
    }
  }
}

void UsualStep::record(std::int32_t nodes, double tokens, std::int64_t draft_passes) {
  constexpr double left = C::discount;
  weight_ = left * weight_ + 1.0;
  nodes_ = left * nodes_ + nodes;
  tokens_ = left * tokens_ + tokens;
  for (std::size_t k = 0; k < drafts_.size(); ++k) {
    drafts_[k] = left * drafts_[k] + (static_cast<std::int64_t>(k) < draft_passes ? 1.0 : 0.0);
  }
}

void UsualStep::record_demand(const ByPass& worth, const DraftDemand::ByCrowd& turns) {
  constexpr double left = C::discount;
  demand_weight_ = left * demand_weight_ + 1.0;
  demand_.record(worth, turns, left);
}

void Company::join_adapting(const UsualStep& usual, double its_won, double of_a_chain) {
  ++adapting;
  of_a_chain_ += of_a_chain;
  won += its_won;
  for (std::size_t k = 0; k < drafts.size(); ++k) drafts[k] += usual.drafts(k);
  if (usual.demand_weight_ > 0.0) {
    demand_.add(usual.demand_, 1.0 / usual.demand_weight_);
    asking_ += 1.0;
  }
  if (!usual.known()) return;
  ++known_;
  nodes_ += usual.nodes();
  tokens_ += usual.tokens();
}

void Company::join_given(const UsualStep& usual) {
  ++given;
  given_nodes_ += usual.nodes();
  given_tokens_ += usual.tokens();
  for (std::size_t k = 0; k < drafts.size(); ++k) {
    drafts[k] += usual.drafts(k);
    come_anyway_[k] += (1.0 - come_anyway_[k]) * usual.drafts(k);
  }
}

void Company::settle(const PassCosts& draft) {
  if (texts == 0) return;
  constexpr double as_good = 0.98;
  const std::int32_t all = adapting + given;
  const auto pass_seconds = [&](double of) {
    const std::int32_t whole = std::max(1, static_cast<std::int32_t>(std::lround(of)));
    return draft.seconds(of, whole, std::int64_t{whole} * length());
  };
  std::size_t prices = 1;
  while (prices < turns.size() && DraftDemand::crowd(prices) <= all) ++prices;
  for (std::size_t c = 0; c < turns.size(); ++c) {
    const std::int32_t crowd = DraftDemand::crowd(std::min(c, prices - 1));
    turns[c] = pass_seconds(crowd) / crowd;
  }
  if (asking_ == 0.0 || adapting < C::many_texts) return;
  for (std::size_t k = 0; k < sharing.size(); ++k) {
    double best = 0.0;
    for (std::size_t c = 0; c < prices; ++c) {
      const double come = std::min(1.0, static_cast<double>(demand_.comes[c][k]) / asking_);
      const double nobody = std::pow(1.0 - come, adapting) * (1.0 - come_anyway_[k]);
      const double gain = static_cast<double>(demand_.gains[c][k]) / asking_ * adapting -
                          (1.0 - nobody) * pass_seconds(std::max(1.0, come * adapting));
      // Of prices that are about as good, the lowest: texts differ from step to step.
      if (gain <= 0.0 || gain < as_good * best) continue;
      best = std::max(best, gain);
      sharing[k] = DraftDemand::crowd(c);
    }
  }
}

double Company::tokens() const {
  const double each = known_ > 0 ? tokens_ / known_ : 1.0;
  return each * adapting + given_tokens_ + (texts - adapting - given);
}

void StepWork::add(std::int32_t its_nodes, std::int64_t its_passes, std::int32_t length) {
  ++texts;
  nodes += its_nodes;
  drafting += its_passes > 0 ? 1 : 0;
  passes = std::max(passes, its_passes);
  turns += its_passes;
  kv_tokens += length;
}

}  // namespace coppice
