// When to speculate, and how far: measured costs against observed acceptance.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/step_seconds.h"
#include "base/token_tree.h"
#include "drafting/calibration.h"
#include "drafting/growth_economics.h"
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

  /// Before the first step. `fit`: mean probability that the draft gave to the prompt's tokens.
  void begin_text(double fit);
  /// Before a step over a text of `prefix` tokens: fixes prices, and says whether to speculate.
  /// Where speculation has lost against plain decoding, it is tried again after a while, ever
  /// more rarely.
  bool begin_step(std::int32_t prefix);
  /// After a step that speculated, in `passes` draft passes.
  void record(const TokenTree& tree, std::span<const std::int32_t> path, std::int64_t passes);
  /// After a plain step.
  void record_plain();
  /// What a step took by the clock: `rows` of the target's pass, `passes` of the draft, none in a
  /// plain step. `disturbed`: others took a processor from it meanwhile. By time slices, which are
  /// longer than a small model's passes: these are hit rarely and hard, dear ones more often, and
  /// all alike in the end, which changes no size. So such steps are not looked at, unless there are
  /// many in a row: then passes are longer than slices. Does nothing without a correction.
  void observe(std::int32_t rows, std::int64_t passes, const StepSeconds& seconds,
               bool disturbed = false);

  /// Least value of a position that pays for its row.
  double threshold() const;
  /// What has been learned so far.
  const AcceptanceCalibration& calibration() const { return calibration_; }

  /// What a plain step takes now.
  double plain_seconds() const;

  double node_cost(std::int32_t size) const override;
  double least_node_cost(std::int32_t size) const override;
  double pass_cost(std::int32_t rows) const override;
  double verify_cost(std::int32_t size) const override;

 private:
  const CostTable& costs_;
  CostCorrection* correction_;
  std::int32_t most_;
  AcceptanceCalibration calibration_;
  std::int32_t steps_to_prices_ = 0, priced_ = 0, steps_ = 0;

  double corrected(Work work, double by_table, std::int32_t rows = 1) const {
    return correction_ == nullptr ? by_table : correction_->factor(work, rows) * by_table;
  }
  double step_cost(std::int32_t size, std::int64_t passes) const;
  void fix_prices(bool hope);

  // In plain steps, a unit that a busy machine changes as much as what is measured in it.
  std::vector<double> verify_, pass_;  ///< of a tree of n nodes; of a draft pass over r rows
  std::vector<double> hull_;           ///< of one node more than n, steps of the costs smoothed
  std::vector<double> least_;  ///< of one node more than n, if so many follow that it is least
  std::vector<std::size_t> corners_;  ///< of that hull

  std::int32_t prefix_ = 0;
  double rate_ = 1.0;                  ///< tokens per plain step's time: what a second is worth
  double tokens_ = 0.0, spent_ = 0.0;  ///< of speculative steps, discounted
  double surplus_ = 0.0;               ///< tokens won against plain decoding, discounted
  std::int32_t barren_ = 0;            ///< steps in a row that grew no node
  std::int32_t largest_tree_ = 0;      ///< so far
  std::int32_t disturbed_ = 0;         ///< steps in a row
  std::int32_t wait_ = 0, next_wait_ = SizingConstants::first_wait;
};

}  // namespace coppice
