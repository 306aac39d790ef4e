// What studies call policies.
#pragma once

#include <string>
#include <vector>

#include "engine/policy_table.h"

namespace coppice::study {

/// policy_names(), coppice's own and the registered ones, and "dyspec-plain" and
/// "dyspec-threshold-plain": the same policies with GenerateOptions::plain_values. Not those
/// that policy_named() refuses.
std::vector<std::string> study_policy_names();

/// Policy, custom_policy and plain_values by such a name, all else as it is by default. Throws
/// Error(usage), which lists all names, for any other, and for a policy that was registered by a
/// name which means something else in a study: those two, "oracle" and "plain".
GenerateOptions policy_named(const std::string& name);

/// The name for which policy_named() gives these.
std::string policy_name(Policy policy, const std::string& custom_policy, bool plain_values);

/// Throws Error(usage) where none of the `chosen` policies is among the `takers` of an option that
/// was given, and would change nothing. `option` names it, without dashes.
void require_chosen(const std::string& option, const std::vector<Policy>& takers,
                    const std::vector<Policy>& chosen);

}  // namespace coppice::study
