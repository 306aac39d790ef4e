// When to speculate, and how far: measured costs against observed acceptance.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "drafting/calibration.h"
#include "drafting/growth_economics.h"
#include "drafting/position_values.h"
#include "sizing/company.h"
#include "sizing/constants.h"
#include "sizing/cost_correction.h"
#include "sizing/cost_table.h"

namespace coppice {

/// Learns, within one sequence, how often children are accepted, and prices growth in tokens.
/// Decisions depend on past steps, the cost table and the tree at hand alone, and on the clock only
/// with a correction.
class AutoSize : public GrowthEconomics {
 public:
  /// `correction`: what the clock has said so far, of all texts; null if sizes are to repeat
  /// themselves. Both outlive this. `most`: draft tokens of the largest tree that is priced.
  AutoSize(const CostTable& costs, CostCorrection* correction, ChildDraw draw, std::int32_t most);

  /// Before the first step, or the first after a scout has given up. `fit`: mean probability that
  /// the draft gave to the prompt's tokens.
  void begin_text(double fit);
  /// Before a joint step: what this text will bring into it.
  void join(Company& company) const;
  /// Before a step, when all have joined: fixes prices, and says whether to speculate. Where
  /// speculation has lost against plain decoding, it is tried again after a while, ever more
  /// rarely; together with the others that wait, so that they share what rows cost.
  bool begin_step(const Company& company);
  /// After a step in which this text speculated, in `passes` of the step's draft passes. Returns
  /// its part of what the step cost, in a plain token's share of a plain step of all texts.
  double record(const TokenTree& tree, std::span<const std::int32_t> path, std::int64_t passes,
                const StepWork& work);
  /// After a step in which this text was plain.
  void record_plain();

  /// Whether it has given speculation up for now.
  bool waits() const { return wait_ > 0; }

  /// Least value of a position that pays for its row.
  double threshold() const;
  /// What has been learned so far.
  const AcceptanceCalibration& calibration() const { return calibration_; }

  /// What a plain step of this text alone takes now.
  double plain_seconds() const { return plain_seconds(1, 0, company_.length()); }

  double node_cost(std::int32_t size) const override;
  double least_node_cost(std::int32_t size) const override;
  double pass_cost(std::int32_t rows, std::int32_t pass) const override;
  double verify_cost(std::int32_t size) const override;

 private:
  const CostTable& costs_;
  CostCorrection* correction_;
  std::int32_t most_;
  AcceptanceCalibration calibration_;
  PositionValues values_;
  Company company_;  ///< of the step at hand
  UsualStep usual_;
  std::int32_t steps_to_prices_ = 0, priced_ = 0, steps_ = 0;

  double corrected(Work work, double by_table, std::int32_t rows = 1) const {
    return correction_ == nullptr ? by_table : correction_->factor(work, rows) * by_table;
  }
  double plain_seconds(std::int32_t texts, std::int32_t prompt_rows, std::int64_t kv_tokens) const;
  double step_cost(std::int32_t size, std::int64_t passes, const StepWork& work) const;
  double draft_seconds(double rows, double texts) const;
  double tokens_per_unit() const;
  double haste() const;
  double tokens_of_a_chain() const;
  UsualStep::ByPass worth_of_passes(const TokenTree& tree);
  void fix_prices(bool hope);
  void meet();
  bool is_due(const Company& company) const;
  bool goes_along();
  void give_up();

  // In a plain token's share of a plain step of all texts (alone: in plain steps), a unit that a
  // busy machine changes as much as what is measured in it.
  std::vector<double> verify_, pass_;  ///< of a tree of n nodes; of a draft pass over r rows
  double draft_factor_ = 1.0;          ///< by which the draft's seconds become pass_
  DraftDemand::ByPass together_{};     ///< texts, this one among them, by draft pass
  std::vector<double> hull_;           ///< of one node more than n, steps of the costs smoothed
  std::vector<double> least_;  ///< of one node more than n, if so many follow that it is least
  std::vector<std::size_t> corners_;  ///< of that hull

  double rate_ = 1.0;                  ///< tokens per that unit
  double worth_ = 1.0;                 ///< of this text's tokens: what the unit is worth to it
  double tokens_ = 0.0, spent_ = 0.0;  ///< of speculative steps, discounted
  double surplus_ = 0.0;               ///< tokens won against plain decoding, discounted
  double won_ = 0.0;                   ///< the same, undiscounted, of the last that count
  double won_before_ = 0.0;            ///< when it last began to speculate
  std::int32_t barren_ = 0;            ///< steps in a row that grew no node
  std::int32_t largest_tree_ = 0;      ///< so far
  std::int32_t wait_ = 0, next_wait_ = SizingConstants::first_wait;
  bool has_waited_ = false;  ///< since it last speculated
  std::int32_t met_ = 1;     ///< texts of a step that surplus and wait were learned among
};

}  // namespace coppice
