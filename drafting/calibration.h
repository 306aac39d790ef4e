// How often what the draft proposes is accepted, learned while a text is written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/token_tree.h"
#include "base/types.h"
#include "drafting/ratio_model.h"

namespace coppice {

/// Chances that a child is accepted once it is judged: its parent was accepted and its earlier
/// siblings were not. Two estimates:
///   - of a drawn child, by its share of what its earlier siblings have left of the draft's mass,
///     or of the beliefs where there are any (base/token_tree.h). It never decreases with the share.
///     DySpec (section 5) takes the share itself. Where the number that will judge the child is
///     known, by that too (drafting/ratio_model.h);
///   - of a position whose token is not drawn yet, where DySpec takes 1.
/// Both go by sibling rank and depth, in classes. While nothing was observed they are DySpec's, or
/// what is usual for a pair.
/// Then the chances below are products: a path's estimate is the product of its nodes' chances and
/// of their earlier siblings' chances to be refused.
///
/// Learning. A step judges, of every reached node, the children in order up to the accepted one.
/// (At temperature 0 and under coupled acceptance the later ones are known as well: they are not
/// the target's token. Of the chance to be accepted once the earlier are not, that says nothing.)
/// Observations are spread over the two nearest of a few knots. A class starts from what its wider
/// class has learned (all depths; DySpec's start: all ranks; at last the start itself) as so many
/// pseudo-observations, and the curve is then made monotone: weighted isotonic regression by
/// pool-adjacent-violators (Ayer et al., 1955; Zadrozny and Elkan, 2002, for calibration).
///
/// Whose trees it values it cannot bias. record() is called between steps, so that while a tree
/// grows the estimates are fixed functions of the past: of text, judgements and noise of earlier
/// steps, all independent, under sampled rejection, of this step's noise. Given the past, a value
/// then depends on the tree at hand as DySpec's values do, on tokens of ancestors, of their earlier
/// siblings and of a position's own, and on the numbers that judge these; what must hold of values
/// for exactness, and does, stands in drafting/position_values.h and drafting/dyspec.cc.
class AcceptanceCalibration {
 public:
  /// Starts from DySpec's own estimates or, with `usual`, from what is usual where children are
  /// drawn in that way; if they come with beliefs, a drawn child's start is its share of them.
  explicit AcceptanceCalibration(std::optional<ChildDraw> usual = std::nullopt,
                                 bool believes = false);

  /// After a step: the tree as it was judged, siblings in drawn order without gaps, and its
  /// accepted nodes.
  void record(const TokenTree& tree, std::span<const std::int32_t> path);
  /// One judged child. `share` in [0, 1]; `depth` of the child, from 1; `uniform`: the number that
  /// judged it, below 0 where it is not known. update() ends a series.
  void observe(std::int32_t rank, std::int32_t depth, double share, bool accepted,
               double uniform = -1.0);
  void update();

  /// Chance of a drawn child, in [0, 1].
  double child(std::int32_t rank, std::int32_t depth, double share, double uniform = -1.0) const;
  /// Chance of a position, in (0, 1].
  double position(std::int32_t rank, std::int32_t depth) const {
    return position_[class_of_rank(rank)][class_of_depth(depth)];
  }
  /// Of all first children judged so far, what share was accepted, with `weight` observations of
  /// `prior` before them.
  double first_child(double prior, double weight) const;

 private:
  static constexpr std::size_t ranks = 4;   ///< first, second, third, later children
  static constexpr std::size_t depths = 3;  ///< 1, 2 and 3, deeper
  /// Finer towards 0 and 1, where small differences decide.
  static constexpr std::array<double, 12> knots = {0.0, 0.02, 0.05, 0.1, 0.2,  0.35,
                                                   0.5, 0.65, 0.8,  0.9, 0.96, 1.0};
  /// Weight of a wider class's estimate, in observations.
  static constexpr double prior_weight = 4.0;

  struct Count {
    double accepted = 0.0;
    double seen = 0.0;
    double estimate(double prior, double weight = prior_weight) const {
      return (accepted + weight * prior) / (seen + weight);
    }
  };
  using Curve = std::array<double, knots.size()>;

  static std::size_t class_of_rank(std::int32_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    return r < ranks ? r : ranks - 1;
  }
  static std::size_t class_of_depth(std::int32_t depth) {
    return depth <= 1 ? 0 : (depth <= 3 ? 1 : 2);
  }

  const std::optional<ChildDraw> usual_;
  const bool believes_;
  RatioModel ratios_;
  std::array<std::array<std::array<Count, knots.size()>, depths>, ranks> seen_{};
  std::array<std::array<Curve, depths>, ranks> curve_{};
  std::array<std::array<double, depths>, ranks> position_{};
};

}  // namespace coppice
