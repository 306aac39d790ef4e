// When to speculate, and how far: measured costs against observed acceptance.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "base/token_tree.h"
#include "cost_table.h"
#include "drafting/dyspec_auto.h"

namespace coppice {

/// Learns, within one sequence, how often positions and nodes of a given value end up on the
/// accepted path, and prices growth in tokens. Decisions depend on past steps, the cost table
/// and values of the tree at hand alone, never on the clock.
class AutoSize : public GrowthEconomics {
 public:
  /// `step_overhead_seconds`: what a speculative step costs beside the two models' passes.
  AutoSize(const CostTable& costs, double step_overhead_seconds);

  /// Before a step: fixes prices for a text of `prefix` tokens, and says whether to speculate.
  /// Where speculation has lost against plain decoding, it is tried again after a while, ever
  /// more rarely.
  bool begin_step(std::int32_t prefix, std::int32_t draft_lag);
  /// After a step that speculated.
  void record(const TokenTree& tree, std::span<const std::int32_t> path, std::int64_t passes);
  /// After a plain step.
  void record_plain();

  /// Length of the chain that pays best at the acceptance seen so far; 0: none does.
  std::int32_t chain_length(std::int32_t most) const;
  /// Least value of a position that pays for its row.
  double threshold() const;

  double position_gain(double value) const override { return gain(positions_, value); }
  double node_gain(double path_prob) const override { return gain(nodes_, path_prob); }
  double node_cost(std::int32_t size) const override;
  double pass_cost(std::int32_t rows) const override;
  double verify_cost(std::int32_t size) const override;

 private:
  // Acceptance by value, in bins of a factor sqrt(2).
  struct Bin {
    double accepted = 0.0;
    double seen = 0.0;
  };
  static constexpr int bins = 24;
  using Bins = std::array<Bin, bins>;
  static int bin_of(double value);
  static double gain(const Bins& table, double value);

  const CostTable& costs_;
  double overhead_;
  Bins positions_{}, nodes_{};
  double chain_tried_ = 2.0, chain_accepted_ = 1.2;  ///< rank-0 children of accepted nodes
  std::int32_t prefix_ = 0;
  double tokens_per_second_ = 0.0;  ///< price of a second, fixed for the step
  // Discounted sums over speculative steps: what they brought and what they cost.
  double tokens_ = 0.0, seconds_ = 0.0;
  double surplus_ = 0.0;  ///< tokens won against plain decoding
  double weight_ = 0.0;
  std::int32_t wait_ = 0, next_wait_ = 1;
};

}  // namespace coppice
