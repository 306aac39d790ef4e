// Drafting that breaks the output's distribution: for tests that must notice, and for audits.
#pragma once

namespace coppice {

/// Faults of drawing children (DraftSampling::plant). All concern AcceptanceRule::rejection.
enum class DrawingFault {
  none,
  same_depth_shares_noise,  ///< nodes of equal depth draw with the same uniforms
  retry_shares_noise,       ///< a position retried in a later step draws with the same uniforms
  declared_is_not_sampled,  ///< children come from the two most probable tokens, D says all
  looks_at_next_sibling,    ///< growth sees the number that judges a drawn child's next sibling
  looks_at_next_step,       ///< growth sees the number that judges the same place in the next step
};

}  // namespace coppice
