// What size of tree to aim for, from what is known before any token is drawn.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "drafting/calibration.h"

namespace coppice {

/// Prices of a step in tokens.
struct StepPrices {
  std::span<const double> verify;  ///< of a tree of n nodes, n from 0 to the most that may grow
  /// Of a draft pass over r rows at r, but the first, which every tree needs; as long as `verify`.
  std::span<const double> pass;
};

/// Where to stop.
struct SizePlan {
  std::int32_t nodes = 0;  ///< that pay best
  std::int32_t depth = 0;  ///< draft passes of that tree
  /// A position that is worth less does not pay for its row: its share of what the rows up to
  /// `nodes` cost, and not less than the first position that the plan leaves out.
  double price = 0.0;
  /// What a node costs where the tree has so many, none to one less than the most: `price`, and
  /// beyond `nodes` the dearest row so far. So a tree that turns out well may fill a bucket of the
  /// matrix products' rows, and crosses its end only for a position worth the step.
  std::vector<double> node_prices;
};

/// The tree that is best by classes of positions alone (Sequoia's positional acceptance, but
/// learned by rank and depth), and best in tokens less their price rather than by size: positions
/// best first under a bound on depth, for every size and for depths around `plan.depth`, 0 for all.
class SizePlanner {
 public:
  /// `plan`: the last one, or a new one; replaced.
  void replan(const AcceptanceCalibration& calibration, const StepPrices& prices, SizePlan& plan);

 private:
  struct Place {
    double value;  // that it is accepted
    double reach;  // that its parent is, and its earlier siblings are not
    std::int32_t depth, rank;
    bool operator<(const Place& other) const { return value < other.value; }
  };
  struct Best {
    double net;
    std::int32_t nodes, depth;
    double last, next;  // values of the last position in it, and of the first left out
  };
  void offer(const AcceptanceCalibration& calibration, double bound, double reach,
             std::int32_t depth, std::int32_t rank);
  /// Improves `best` by trees of this many layers; false if none of them did.
  bool try_depth(const AcceptanceCalibration& calibration, const StepPrices& prices,
                 std::int32_t depth, Best& best);

  std::vector<Place> heap_;
};

}  // namespace coppice
