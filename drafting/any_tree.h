// For what is exact only where any tree is.
#pragma once

#include <string>

#include "base/error.h"
#include "base/types.h"

namespace coppice {

/// Coupled acceptance and temperature 0 settle the token after a node without looking at the
/// tree, so that any tree is exact. Sampled rejection does not: it takes a node's children for
/// draws from D, in order, and is biased where some were kept or moved for what they are.
/// Children drawn by AcceptanceRule::rejection are meant for it.
///
/// Throws Error(usage) for AcceptanceRule::rejection; `what` names the caller.
inline void require_any_tree_exact(const std::string& what, AcceptanceRule draw) {
  if (draw != AcceptanceRule::rejection) return;
  throw_usage(cat(what,
                  ": sampled rejection needs every drawn token in drawn order, and keeping tokens "
                  "for what they are would bias the text; use coupled acceptance, or temperature 0 "
                  "without sampled children"));
}

}  // namespace coppice
