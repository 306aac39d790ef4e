// How a judged child's chance follows from what is known of it.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "drafting/online_logistic.h"

namespace coppice {

/// Chance that a judged child is accepted: logistic in its share of the draft's mass, or of the
/// beliefs, and in the number u that will judge it, where that is known,
///   logit chance = c[0] + c[1] logit(share) + c[2] (-u - log u),
/// for first, second and later siblings. It never decreases with the share, nor increases with u.
/// A child is accepted when u is below a ratio of target and draft (kernels/rejection_rule.h), so
/// it is nearly certain for u near 0; what it falls to near 1 is learned.
///
/// Coefficients are learned (drafting/online_logistic.h). How often a draft is right differs most
/// from pair to pair, hence the start's c[0] counts for a few children only, the others for many.
class AcceptanceModel {
 public:
  using Coefficients = OnlineLogistic::Coefficients;
  using Start = std::array<Coefficients, 3>;  ///< by sibling rank

  explicit AcceptanceModel(const Start& start);
  /// Starts anew from where `others` are.
  void start_from(const AcceptanceModel& others);
  /// What was observed counts for that much less.
  void fade(double left);
  /// `share` in [0, 1]; `u` in (0, 1), or below 0: not known.
  double chance(std::int32_t rank, double share, double u = -1.0) const;
  void observe(std::int32_t rank, double share, bool accepted, double u = -1.0);

 private:
  static std::size_t class_of(std::int32_t rank);
  static Coefficients features(double share, double u);

  std::array<OnlineLogistic, 3> classes_;
};

}  // namespace coppice
