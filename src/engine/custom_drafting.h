// A user's policy among the drafting policies.
#pragma once

#include <memory>
#include <string>

#include "custom_policy.h"
#include "drafting/policy.h"

namespace coppice {

/// Lets `policy` grow trees by the rules of GrowingTree, which this enforces; `name` is for
/// messages. Of GrowthLimits, min_value is not passed on. Where children are drawn by
/// AcceptanceRule::rejection every token drawn stays, at its rank: recursive rejection is then
/// exact whatever the policy decides, because it can only decide by tokens that are kept, by past
/// steps and by noise of its own (custom_policy.h says where a policy could get round that).
std::unique_ptr<DraftPolicy> adapt_policy(std::string name, std::unique_ptr<CustomPolicy> policy,
                                          AcceptanceRule draw);

}  // namespace coppice
