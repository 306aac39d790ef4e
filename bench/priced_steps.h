// What steps would cost on another device.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "engine/step_view.h"
#include "sizing/cost_table.h"

namespace coppice::bench {

/// A step as it might have ended: what it brings, and what it costs.
struct StepEnd {
  double tokens = 1.0;
  double seconds = 0.0;
};

/// Tokens per second if each step had ended where the ratio over all of them is best (Dinkelbach).
/// No rule for sizes does better with these trees: it knows which nodes are accepted.
double best_rate(const std::vector<std::vector<StepEnd>>& steps);

/// Prices steps by a table of costs in the place of this machine's clock: acceptance is real, time
/// is the table's. Passes cost what the table says for their rows and the text's length, and the
/// rest of a step so much and so much a node.
class PricedSteps {
 public:
  /// A file as --cost-table writes it, whatever models and device it was measured for. Throws Error
  /// where it cannot be read.
  explicit PricedSteps(const std::filesystem::path& costs);
  const CostTable& costs() const { return costs_; }

  void add(const StepView& step);
  /// Seconds since the last call.
  StepSeconds take();
  /// Returns the ends of the steps since the last call: a plain step, or the tree as it was grown
  /// but no larger than to hold so many of its accepted nodes.
  std::vector<std::vector<StepEnd>> take_ends();

 private:
  StepSeconds price(const TokenTree& tree, std::int32_t size, std::int64_t passes,
                    std::int32_t prefix) const;

  CostTable costs_;
  StepSeconds sum_;
  std::vector<std::vector<StepEnd>> ends_;
};

}  // namespace coppice::bench
