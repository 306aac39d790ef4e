// When to speculate, and how far: measured costs against observed acceptance.
#pragma once

#include <cstdint>
#include <span>

#include "base/token_tree.h"
#include "drafting/calibration.h"
#include "drafting/lookahead.h"
#include "sizing/constants.h"
#include "sizing/cost_correction.h"
#include "sizing/cost_table.h"
#include "sizing/step_prices.h"
#include "sizing/step_work.h"

namespace coppice {

/// Learns, within one sequence, how often children are accepted, and decides whether to speculate.
/// Decisions depend on past steps, the cost table and the tree at hand alone, and on the clock only
/// with a correction.
///
/// A text that is alone has prices of its own, by its own rate. Among others its rate is theirs,
/// and BatchSizer (batch_sizer.h) decides; a text that must not grow together with them then has
/// prices of its own, too.
class SequenceSizer {
 public:
  /// `correction`: what the clock has said so far, of all texts; null if sizes are to repeat
  /// themselves. Both outlive this. `most`: draft tokens of the largest tree that is priced.
  SequenceSizer(const CostTable& costs, CostCorrection* correction, AcceptanceRule draw,
                std::int32_t most);

  /// Before the first step, or the first after a probe has given up. `likelihood`: mean probability
  /// that the draft gave to the prompt's tokens.
  void begin_text(double likelihood);

  /// Before a step of this text alone: fixes prices, and says whether to speculate. Where
  /// speculation has lost against plain decoding, it is tried again after a while, ever more
  /// rarely. `prices`: they are wanted even if not.
  bool begin_alone(const StepPrices::Step& step, bool prices = false);
  /// After a step in which this text speculated. Returns its part of what the step cost, in a plain
  /// token's share of a plain step of all texts: those that drafted share what that is beyond one.
  double record(const TokenTree& tree, std::span<const std::int32_t> path, const StepWork& work);
  /// After a step in which this text was plain, or its draft had no part,
  void record_plain();
  /// and what that brought with a tree that came without the draft.
  void record_without_draft(const TokenTree& tree, std::span<const std::int32_t> path,
                            const StepWork& work);

  /// Whether it has given speculation up for now.
  bool waits() const { return wait_ > 0; }

  /// Before a step among others. `seen`: what all texts have shown of the draft.
  void expect(const AcceptanceCalibration& seen);
  /// Tokens that a short chain may be expected to bring.
  double speed() const;
  /// Tokens that it has left over those that it would have left if it had gone on as fast as the
  /// texts around it, which have `progress` tokens each on average since a common beginning.
  double behind(double progress, std::int32_t tokens_left);
  /// In such a step, if it grows apart: fixes prices at that rate, for a text whose tokens are
  /// worth that much, and says whether its tree is expected to pay.
  bool begin_apart(const StepPrices::Step& step, double rate, const GrowthPrior& tree);
  /// Whether it did speculate in the last such step, or there was none.
  bool speculated() const { return idle_ == 0; }
  /// Whether it is to be tried in such a step, though it is expected not to pay.
  bool is_due(std::int64_t step) const;
  /// The step begins: with a tree of this text, perhaps one that is tried, or without.
  void begin_among_others(bool speculates, bool tried);

  /// Least value of a position that pays for its row.
  double threshold() const;
  /// What has been learned so far.
  const AcceptanceCalibration& calibration() const { return calibration_; }
  const StepPrices& prices() const { return prices_; }
  /// What a plain step of this text alone takes now.
  double plain_seconds() const { return costs_.plain(1, 0, length_); }

 private:
  void fix_prices(const StepPrices::Step& step, bool optimistic);
  double cost_of(const StepWork& work) const;
  void give_up();

  ClockedCosts costs_;
  std::int32_t most_;
  AcceptanceCalibration calibration_;
  StepPrices prices_;        ///< their rate is that of speculative steps alone
  std::int32_t length_ = 0;  ///< tokens, when a step last began

  // Alone:
  std::int32_t steps_ = 0;         ///< that were to speculate
  double surplus_ = 0.0;           ///< tokens won against plain decoding, discounted
  std::int32_t barren_ = 0;        ///< steps in a row that grew no node
  std::int32_t largest_tree_ = 0;  ///< so far
  std::int32_t wait_ = 0, next_wait_ = SizingConstants::first_wait;

  // Among others:
  std::int32_t recorded_ = 0;  ///< steps in which it speculated, alone too
  std::int32_t idle_ = 0;      ///< steps since the last of them
  std::int32_t idle_at_most_ = SizingConstants::retry_every;
  bool tried_ = false;  ///< in the step at hand
  double progress_before_ = -1.0, left_before_ = 0.0;
};

}  // namespace coppice
