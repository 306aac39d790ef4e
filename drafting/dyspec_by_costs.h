// DySpec where sizes follow costs and what is drawn stays.
#pragma once

#include <memory>

#include "drafting/policy.h"

namespace coppice {

/// The policy of make_dyspec_policy() for a rule with economics where not any tree is exact.
std::unique_ptr<DraftPolicy> make_dyspec_by_costs(const DyspecRule& rule);

}  // namespace coppice
