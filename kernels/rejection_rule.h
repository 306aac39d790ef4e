// Recursive rejection of one node's children, for host and device alike.
#pragma once

#include "kernels/host_device.h"

namespace coppice {

/// The state of recursive rejection at a node (DySpec Algorithm 3, SpecInfer): four numbers stand
/// for the residual. T and D are the node's target and draft distributions, in float and taken as
/// exact. After k rejected siblings the residual R is proportional to max(T - c D, 0), and D' to D
/// without their tokens: with Z the mass of the former and s the mass of those tokens under D, the
/// next child y is accepted with probability
///   min(1, R(y) / D'(y)) = min(1, ((T(y) - c D(y)) / Z) / (D(y) / (1 - s))),
/// and its rejection replaces c by c + Z / (1 - s). (T - c D is negative at rejected tokens, so D
/// may stand for D' in the residual.)
///
///   NodeRejection state;
///   for (each child, in drawn order) {
///     if (state.accepts(u, T(y), D(y))) return child;
///     state.reject(D(y));
///     state.note_masses(mass of max(T - state.scale D, 0), mass of D);
///     if (!state.has_residual()) break;
///   }
///   sample from max(T - state.scale D, 0) if state.has_residual(), else from T
///
/// A child y that comes from no distribution is as one drawn from the one-hot distribution at y,
/// which D has no part in: it is accepted with probability R(y), and its rejection leaves R without
/// y. That T - c D may be positive there is why masses and samples are then taken without it: T(y)
/// counts as 0. D counts y as drawn, for no later child is y: accepts_certain() and
/// reject_certain() take the places of accepts() and reject(), with D(y) = 0 while no child was
/// drawn from D.
///
/// Exact but for rounding. T and D sum to 1 only within float rounding, which shifts the law by at
/// most |sum T - 1| + |sum D - 1|, as much as rounding moves T itself.
struct NodeRejection {
  /// A residual mass of this size or less is rounding: T - c D is computed in double. A rejection
  /// that leaves no more has a probability of that size, and T itself serves.
  static constexpr double no_mass = 1e-12;

  /// For planted faults: whether a refused child from no distribution leaves the residual.
  static constexpr bool certain_leave = true;

  double scale = 0.0;          ///< c; above 0 once a child has been rejected
  double residual_left = 1.0;  ///< Z
  double draft_total = 1.0;    ///< D's own sum; noted once a child has been rejected
  double draft_drawn = 0.0;    ///< s

  /// Whether the next child is accepted with `u`, uniform on (0, 1). As u > 0, a ratio of 0 never
  /// accepts.
  COPPICE_HOST_DEVICE bool accepts(double u, double target_prob, double draft_prob) const {
    const double difference = target_prob - scale * draft_prob;
    const double residual = difference > 0.0 ? difference : 0.0;
    return u * residual_left * draft_prob < residual * draft_left(draft_prob);
  }

  /// The child that was not accepted has this D.
  COPPICE_HOST_DEVICE void reject(double draft_prob) {
    scale += residual_left / draft_left(draft_prob);
    draft_drawn += draft_prob;
  }

  /// The same of a child from no distribution.
  COPPICE_HOST_DEVICE bool accepts_certain(double u, double target_prob, double draft_prob) const {
    return u * residual_left < target_prob - scale * draft_prob;
  }
  COPPICE_HOST_DEVICE void reject_certain(double draft_prob) { draft_drawn += draft_prob; }

  /// Masses of max(T - scale D, 0) and of D, after a rejection. The latter never changes.
  COPPICE_HOST_DEVICE void note_masses(double residual, double draft) {
    residual_left = residual;
    draft_total = draft;
  }

  COPPICE_HOST_DEVICE bool has_residual() const { return residual_left > no_mass; }

  /// 1 - s; rounding must not take it below the next child's own mass.
  COPPICE_HOST_DEVICE double draft_left(double draft_prob) const {
    const double left = draft_total - draft_drawn;
    return left > draft_prob ? left : draft_prob;
  }
};

}  // namespace coppice
