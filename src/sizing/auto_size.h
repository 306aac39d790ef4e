// When to speculate, and how far: measured costs against observed acceptance.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/token_tree.h"
#include "drafting/calibration.h"
#include "drafting/dyspec_auto.h"
#include "sizing/constants.h"
#include "sizing/cost_table.h"
#include "sizing/size_plan.h"

namespace coppice {

/// Learns, within one sequence, how often children are accepted, and prices growth in tokens.
/// Decisions depend on past steps, the cost table and the tree at hand alone, and on the clock only
/// where observe() is called.
class AutoSize : public GrowthEconomics {
 public:
  /// `most`: draft tokens of trees that grow by node_cost(); 0 where none do.
  AutoSize(const CostTable& costs, ChildDraw draw, std::int32_t most);

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
  /// What the step's passes took by the clock (`rows` of the target's pass, `passes` of the
  /// draft). Call it only where repeatable sizes are not wanted: prices then follow the machine.
  void observe(std::int32_t rows, double target_seconds, std::int64_t passes, double draft_seconds);

  /// Length of the chain that pays best at the acceptance seen so far, at least 1.
  std::int32_t chain_length(std::int32_t most) const;
  /// Least value of a position that pays for its row.
  double threshold() const;
  /// What has been learned so far.
  const AcceptanceCalibration& calibration() const { return calibration_; }

  double node_cost(std::int32_t size) const override;
  double pass_cost(std::int32_t rows) const override;
  double verify_cost(std::int32_t size) const override;

 private:
  const CostTable& costs_;
  ChildDraw draw_;
  std::int32_t most_;
  AcceptanceCalibration calibration_;
  /// Under sampled rejection a token that was drawn stays: the size to aim for is planned.
  SizePlanner planner_;
  SizePlan plan_;
  std::int32_t steps_to_plan_ = 0, plans_ = 0;
  std::vector<double> verify_prices_, pass_prices_;  ///< for the planner
  /// Clock over table, running means: a shared machine's speed changes.
  double plain_scale_ = 1.0, verify_scale_ = 1.0, draft_scale_ = 1.0;
  double plain_seconds() const { return plain_scale_ * costs_.target.seconds(1, prefix_); }
  double verify_seconds(std::int32_t rows) const {
    if (rows == 1) return plain_seconds();
    return verify_scale_ * costs_.target.seconds(rows, prefix_) +
           SizingConstants::node_seconds * (rows - 1);
  }
  double draft_seconds(std::int32_t rows) const {
    return draft_scale_ * costs_.draft.seconds(rows, prefix_);
  }
  double hull_cost(std::int32_t size) const;
  void plan();
  std::int32_t prefix_ = 0;
  double tokens_per_second_ = 0.0;       ///< price of a second, fixed for the step
  double tokens_ = 0.0, seconds_ = 0.0;  ///< of speculative steps, discounted
  double surplus_ = 0.0;                 ///< tokens won against plain decoding, discounted
  std::int32_t barren_ = 0;              ///< steps in a row that grew no node
  std::int32_t wait_ = 0, next_wait_ = SizingConstants::first_wait;
};

}  // namespace coppice
