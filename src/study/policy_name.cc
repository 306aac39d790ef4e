#include "study/policy_name.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace coppice::study {
namespace {

constexpr std::array calibrated = {Policy::dyspec, Policy::dyspec_threshold};

std::string calibrated_name(Policy policy) { return cat(name_of(policy), "-calibrated"); }

/// Names of rows and lines that no policy of a user may pass for.
bool is_taken(const std::string& name) {
  return name == "oracle" || name == "plain" ||
         std::any_of(calibrated.begin(), calibrated.end(),
                     [&](Policy policy) { return name == calibrated_name(policy); });
}

bool contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

}  // namespace

std::vector<std::string> study_policy_names() {
  std::vector<std::string> names = policy_names();
  names.erase(std::remove_if(names.begin(), names.end(), is_taken), names.end());
  for (const Policy policy : calibrated) {
    const auto same = std::find(names.begin(), names.end(), name_of(policy));
    names.insert(same + 1, calibrated_name(policy));
  }
  return names;
}

GenerateOptions policy_named(const std::string& name) {
  GenerateOptions options;
  if (is_taken(name) && contains(registered_policies(), name)) {
    throw_usage(cat("--policies ", quote(name), ": a policy was registered by a name that means ",
                    "something else in a study; register it by another"));
  }
  for (const Policy policy : calibrated) {
    if (name != calibrated_name(policy)) continue;
    options.policy = policy;
    options.calibrate = true;
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

std::string policy_name(Policy policy, const std::string& custom_policy, bool calibrate) {
  if (policy == Policy::custom) return custom_policy;
  return calibrate ? calibrated_name(policy) : name_of(policy);
}

}  // namespace coppice::study
