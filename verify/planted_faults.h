// Acceptance that breaks the output's distribution: for tests that must notice, and for audits.
#pragma once

#include <memory>

#include "verify/target_runner.h"
#include "verify/verifier.h"

namespace coppice {

enum class JudgingFault {
  residual_not_renormalised,    ///< the residual keeps its mass from sibling to sibling
  small_residual_is_target,     ///< a residual of mass below 1% is replaced by the target
  accepts_at_zero,              ///< uniforms of 4 bits compared with <=: a ratio of 0 is accepted
  siblings_share_uniform,       ///< all children of a node are judged by one uniform
  residual_shares_draft_noise,  ///< the residual is sampled with the uniform that drew rank 0
  sibling_order_lost,           ///< children are judged in token order
  declared_is_not_sampled,      ///< judged by the square root of D, renormalised
  draft_keeps_looked_up,        ///< D' keeps the mass of refused children from no distribution
  residual_keeps_looked_up,     ///< and so does the residual
};

/// make_rejection_verifier() with a fault.
std::unique_ptr<Verifier> make_faulty_rejection_verifier(JudgingFault fault);

/// Rotates a tree's rows by their place in the batch, not by their depth.
void rotate_by_index(const PassRows& rows);

}  // namespace coppice
