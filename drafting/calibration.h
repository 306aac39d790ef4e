// How often what the draft proposes is accepted, learned while a text is written.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/token_tree.h"
#include "base/types.h"
#include "drafting/acceptance_model.h"

namespace coppice {

/// Chances that a child is accepted once it is judged: its parent was accepted and its earlier
/// siblings were not. Two estimates:
///   - of a child, by sibling rank and its share of what its earlier siblings have left of the
///     draft's mass, or of the beliefs where there are any (base/token_tree.h), and, where the
///     number that will judge it is known, by that too (drafting/acceptance_model.h). DySpec
///     (section 5) takes the share itself;
///   - of a position of which nothing is known but sibling rank and depth, where DySpec takes 1.
/// Then the chances below are products: a path's estimate is the product of its nodes' chances and
/// of their earlier siblings' chances to be refused.
///
/// Learning. It starts from what is usual where children are drawn in this way. A step judges, of
/// every reached node, the children in order up to the accepted one.
/// (At temperature 0 and under coupled acceptance the later ones are known as well: they are not
/// the target's token. Of the chance to be accepted once the earlier are not, that says nothing.)
/// A position's rank and depth form classes; a class starts from what its rank has learned, and a
/// rank from what is usual, as pseudo-observations.
///
/// Whose trees it values it cannot bias. record() is called between steps, so that while a tree
/// grows the estimates are fixed functions of the past: of text, judgements and noise of earlier
/// steps, all independent, under sampled rejection, of this step's noise. Given the past, a value
/// then depends on the tree at hand as DySpec's values do, on tokens of ancestors, of their earlier
/// siblings and of a position's own, and on the numbers that judge these; what must hold of values
/// for exactness, and does, stands in drafting/position_values.h and drafting/dyspec.cc.
class AcceptanceCalibration {
 public:
  explicit AcceptanceCalibration(AcceptanceRule draw = AcceptanceRule::rejection);

  /// After a step: the tree as it was judged, siblings in drawn order without gaps, and its
  /// accepted nodes. Children from no distribution teach nothing and have no rank here.
  void record(const TokenTree& tree, std::span<const std::int32_t> path);
  /// What `others` have learned is what is usual from now on; with `anew`, what this has learned of
  /// shares and numbers gives way to it.
  void expect(const AcceptanceCalibration& others, bool anew);
  /// What was observed counts for that much less: texts come and go.
  void fade(double left);
  /// One judged child. `share` in [0, 1]; `depth` of the child, from 1; `uniform`: the number that
  /// judged it, below 0 where it is not known. update() ends a series.
  void observe(std::int32_t rank, std::int32_t depth, double share, bool accepted,
               double uniform = -1.0);
  void update();

  /// Chance of a child, in (0, 1). It never decreases with the share, nor increases with `uniform`.
  double child(std::int32_t rank, double share, double uniform = -1.0) const {
    return (uniform < 0.0 ? by_share_ : by_number_).chance(rank, share, uniform);
  }
  /// Chance of a position, in (0, 1].
  double position(std::int32_t rank, std::int32_t depth) const {
    return position_[class_of_rank(rank)][class_of_depth(depth)];
  }

 private:
  static constexpr std::size_t ranks = 4;   ///< first, second, third, later children
  static constexpr std::size_t depths = 3;  ///< 1, 2 and 3, deeper
  /// Weight of a wider class's estimate, in observations.
  static constexpr double prior_weight = 4.0;

  struct Count {
    double accepted = 0.0;
    double seen = 0.0;
    Count& operator+=(const Count& other) {
      accepted += other.accepted;
      seen += other.seen;
      return *this;
    }
    double estimate(double prior, double weight = prior_weight) const {
      return (accepted + weight * prior) / (seen + weight);
    }
  };

  static std::size_t class_of_rank(std::int32_t rank) {
    const auto r = static_cast<std::size_t>(rank);
    return r < ranks ? r : ranks - 1;
  }
  static std::size_t class_of_depth(std::int32_t depth) {
    return depth <= 1 ? 0 : (depth <= 3 ? 1 : 2);
  }
  Count of_rank(std::size_t rank) const;

  std::array<double, ranks> usual_;  ///< chance by rank, before anything is seen
  AcceptanceModel by_share_, by_number_;
  std::array<std::array<Count, depths>, ranks> seen_{};
  std::array<std::array<double, depths>, ranks> position_{};
};

}  // namespace coppice
