// DySpec with an automatic size: grow as long as it pays.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "drafting/calibration.h"
#include "drafting/policy.h"
#include "drafting/position_values.h"

namespace coppice {

/// What growing a tree further costs and brings, in tokens. It is fixed while a tree grows.
class GrowthEconomics {
 public:
  virtual ~GrowthEconomics() = default;
  /// Cost, in tokens, of one more node than `size`; not decreasing in it, infinite where there is
  /// no room.
  virtual double node_cost(std::int32_t size) const = 0;
  /// Cost, in tokens, of a draft pass over `rows` rows.
  virtual double pass_cost(std::int32_t rows) const = 0;
  /// Cost, in tokens, of a verify pass over a tree of `size` nodes, as measured (node_cost
  /// may smooth its steps).
  virtual double verify_cost(std::int32_t size) const = 0;
};

/// DySpec's greedy rule with learned acceptance in the place of draft probability: values and
/// estimates are those of drafting/position_values.h with a calibration.
///
/// Layer by layer: a draft pass over the frontier is made where the tokens it can be expected
/// to bring exceed its cost, a position is drawn where its value exceeds its row's cost.
///
/// `hindsight` false (sampled rejection): every token that is drawn is kept, so a decision may
/// look at any drawn token; whether a position is drawn depends on tokens above it and on its
/// earlier siblings, all kept, and on other branches, which do not depend on it. So the tree's
/// shape never depends on a token that is dropped, and recursive rejection stays exact.
/// `hindsight` true (temperature 0 and coupled acceptance, exact for any tree): nodes are also
/// judged by their own probability, and cut afterwards to the size that pays best.
class DyspecAutoPolicy : public DraftPolicy {
 public:
  /// Both outlive the policy, and the calibration does not change while a tree grows.
  DyspecAutoPolicy(const GrowthEconomics& economics, const AcceptanceCalibration& calibration,
                   bool hindsight);
  std::string name() const override { return "dyspec"; }
  void grow(DraftSource& source, const GrowthLimits& limits, TokenTree& tree) override;
 private:
  struct Position {
    double gain;  ///< estimated acceptance
    std::int32_t node;
    std::int32_t rank;
  };
  void push_position(double gain, std::int32_t node, std::int32_t rank);
  bool select_frontier(const TokenTree& tree, const GrowthLimits& limits, std::int32_t passes);
  void draw_children(DraftSource& source, const GrowthLimits& limits, TokenTree& tree);
  void cut_in_hindsight(TokenTree& tree);

  const GrowthEconomics& economics_;
  const AcceptanceCalibration& calibration_;
  PositionValues values_;
  bool hindsight_;
  std::vector<Position> heap_;
  std::vector<double> held_;  ///< by node: its estimate, held below its parent's and elder's
  std::vector<std::int32_t> frontier_, selected_, ranking_, new_index_;
  TokenTree cut_;
};

}  // namespace coppice
