// Policies by name.
#pragma once

#include <memory>
#include <string>

#include "drafting/policy.h"

namespace coppice {

/// Throws Error(usage) unless a policy of that name was registered.
void require_registered(const std::string& name);

/// The registered policy as a drafting policy whose children are drawn by `draw`. Throws
/// Error(usage) for an unknown name, Error(failure) where its factory throws or gives none.
std::unique_ptr<DraftPolicy> make_registered_policy(const std::string& name, ChildDraw draw);

}  // namespace coppice
