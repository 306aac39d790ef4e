#include "study/grid/policy_name.h"

#include <algorithm>

#include "base/error.h"

namespace coppice::study {
namespace {

std::string plain_name(Policy policy) { return cat(name_of(policy), "-plain"); }

/// Names of rows and lines that no policy of a user may pass for.
bool is_taken(const std::string& name) {
  const std::vector<Policy> takers = takers_of(PolicyOption::plain_values);
  return name == "oracle" || name == "plain" ||
         std::any_of(takers.begin(), takers.end(),
                     [&](Policy policy) { return name == plain_name(policy); });
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::vector<std::string> study_policy_names() {
  std::vector<std::string> names = policy_names();
  names.erase(std::remove_if(names.begin(), names.end(), is_taken), names.end());
  for (const Policy policy : takers_of(PolicyOption::plain_values)) {
    const auto same = std::find(names.begin(), names.end(), name_of(policy));
    names.insert(same + 1, plain_name(policy));
  }
  return names;
}

GenerateOptions policy_named(const std::string& name) {
  GenerateOptions options;
  if (is_taken(name) && contains(registered_policies(), name)) {
    throw_usage(cat("--policies ", quote(name), ": a policy was registered by a name that means ",
                    "something else in a study; register it by another"));
  }
  for (const Policy policy : takers_of(PolicyOption::plain_values)) {
    if (name != plain_name(policy)) continue;
    options.policy = policy;
    options.plain_values = true;
    return options;
  }
  const std::vector<std::string> known = study_policy_names();
  if (!contains(known, name)) {
    std::string names;
    for (const std::string& one : known) names += (names.empty() ? "" : ", ") + one;
    throw_usage(cat("--policies ", quote(name), " is unknown; use ", names));
  }
  choose_policy(options, name);
  return options;
}

std::string policy_name(Policy policy, const std::string& custom_policy, bool plain_values) {
  if (policy == Policy::custom) return custom_policy;
  return plain_values ? plain_name(policy) : name_of(policy);
}

void require_chosen(const std::string& option, const std::vector<Policy>& takers,
                    const std::vector<Policy>& chosen) {
  std::string names;
  for (const Policy taker : takers) {
    if (std::find(chosen.begin(), chosen.end(), taker) != chosen.end()) return;
    names += cat(names.empty() ? "" : " or ",
                 taker == Policy::custom ? "a registered one" : name_of(taker));
  }
  throw_usage(cat("--", option, ": it belongs to policy ", names,
                  ", which --policies does not name; leave it out, or name the policy there"));
}

}  // namespace coppice::study
