// Acceptance that breaks the output's distribution, for tests that must notice.
#pragma once

#include <memory>

#include "verify/acceptance.h"

namespace coppice {

enum class JudgingFault {
  none,                         ///< literal recursive rejection with residual vectors: correct
  residual_not_renormalised,    ///< the residual keeps its mass from sibling to sibling
  accepts_at_zero,              ///< uniforms of 4 bits compared with <=: a ratio of 0 is accepted
  siblings_share_uniform,       ///< all children of a node are judged by one uniform
  residual_shares_draft_noise,  ///< the residual is sampled with the uniform that drew rank 0
  sibling_order_lost,           ///< children are judged in token order
  declared_is_not_sampled,      ///< judged by the square root of D, renormalised
};

/// Recursive rejection with a fault, as slow and literal as DySpec's Algorithm 3 (its slips
/// corrected). Takes the same trees as make_rejection_rule().
std::unique_ptr<AcceptanceRule> make_faulty_rejection_rule(JudgingFault fault);

}  // namespace coppice
