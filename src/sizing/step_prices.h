// What growth costs in a step, in tokens.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "drafting/growth_economics.h"
#include "sizing/cost_correction.h"
#include "sizing/cost_table.h"
#include "sizing/step_work.h"

namespace coppice {

/// A table's costs as the clock has corrected them. Seconds. Both outlive this.
struct ClockedCosts {
  const CostTable& table;
  const CostCorrection* correction;  ///< null if sizes are to repeat themselves

  double factor(Work work, std::int32_t rows = 1) const {
    return correction == nullptr ? 1.0 : correction->factor(work, rows);
  }
  /// Returns the seconds of a step that gives each text a token and computes so many rows of
  /// others' prompts.
  double plain(std::int32_t texts, std::int32_t prompt_rows, std::int64_t kv_tokens) const;
  /// Returns the seconds of a step as it was.
  double step(const StepWork& work) const;
};

/// Prices of nodes that grow together, of one text or of a batch: what they do to the seconds of
/// the whole step, at the tokens that a second brings now.
class StepPrices final : public GrowthEconomics {
 public:
  /// When costs are fixed anew, beside every few steps and where the number of texts has changed.
  /// They move slowly, and there are many of them.
  struct Renewal {
    std::int32_t first = 0;     ///< at each of so many steps, at first
    bool follows_rows = false;  ///< where other rows have come or gone, or larger trees are priced
  };
  StepPrices(const ClockedCosts& costs, Renewal renewal) : costs_(costs), renewal_(renewal) {}

  struct Step {
    std::int64_t number = 0;       ///< of the engine's steps
    std::int32_t texts = 1;        ///< a row each
    std::int32_t other_rows = 0;   ///< of the target's pass: others' prompts and trees
    std::int32_t prompt_rows = 0;  ///< of these, which plain steps have too
    std::int64_t kv_tokens = 0;    ///< of all texts
    /// One text's tree is priced as if so many did the same: its part of what all of them cost.
    std::int32_t alike = 1;
    std::int32_t length() const { return static_cast<std::int32_t>(kv_tokens / texts); }
  };
  /// Fixes what trees of up to `most` nodes cost, if that is due; more are priced as the last of
  /// them. `optimistic`: what was not seen lately is priced lower
  /// (CostCorrection::optimistic_factor).
  void fix(const Step& step, std::int32_t most, bool optimistic);
  /// Whether they were last fixed for a step of so many texts.
  bool are_for(std::int32_t texts) const { return !verify_.empty() && step_.texts == texts; }
  /// Makes fixing them due.
  void renew() { steps_to_renewal_ = 0; }
  /// Tokens that a plain token's share of a plain step brings, no less than plain decoding's. What
  /// is priced is worth that many of them.
  void set_rate(double rate, double weight);

  /// After a step: such tokens, and what it took in plain steps.
  void record(double tokens, double taken);
  /// The present rate, of the steps recorded so far, discounted; 1 if there are none.
  double rate() const { return spent_ > 0.0 ? tokens_ / spent_ : 1.0; }
  bool has_rate() const { return spent_ > 0.0; }
  void forget_rate() { tokens_ = spent_ = 0.0; }
  /// Whether a plain step could bring more than that, were it as cheap as it may be: else that
  /// would never be seen. Needs a correction.
  bool plain_may_pay(std::int32_t texts) const;

  double least_node_cost(std::int32_t size) const override;
  double pass_cost(std::int32_t rows, std::int32_t pass) const override;
  double verify_cost(std::int32_t size) const override;

 private:
  bool is_due(const Step& step, std::int32_t most, bool optimistic);

  ClockedCosts costs_;
  Renewal renewal_;
  Step step_;  ///< for which costs were last fixed
  std::int32_t steps_to_renewal_ = 0, renewals_ = 0;
  double tokens_ = 0.0, spent_ = 0.0;  ///< recorded, discounted
  double tokens_per_second_ = 0.0;
  double plain_share_ = 1.0;  ///< seconds of a plain step, by its texts
  double draft_factor_ = 1.0, host_factor_ = 1.0;
  double cold_ = 0.0;           ///< seconds that a step's first draft pass takes beyond a later one
  std::vector<double> verify_;  ///< seconds, by nodes
  std::vector<double> least_;   ///< of each further node, at the number of them that makes it least
  std::vector<std::size_t> corners_;  ///< of the lower hull, while it is built
};

}  // namespace coppice
