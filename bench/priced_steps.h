// What steps would cost on another device.
#pragma once

#include <filesystem>

#include "engine/step_view.h"
#include "sizing/cost_table.h"

namespace coppice::bench {

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

 private:
  CostTable costs_;
  StepSeconds sum_;
};

}  // namespace coppice::bench
