#include "engine/policy_registry.h"

#include <algorithm>
#include <exception>
#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "base/error.h"
#include "coppice.h"
#include "engine/custom_drafting.h"
#include "engine/policy_table.h"

namespace coppice {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, std::shared_ptr<const PolicyFactory>> factories;  // never copied
};

// Made on first use, so that registering from another file's static initialiser works.
Registry& registry() {
  static Registry all;
  return all;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string registered_text() {
  const std::vector<std::string> names = registered_policies();
  return names.empty() ? "none is registered" : "registered are " + joined(names);
}

bool is_name(const std::string& name) {
  return !name.empty() && name.size() <= 64 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

std::shared_ptr<const PolicyFactory> factory_of(const std::string& name) {
  Registry& all = registry();
  {
    const std::lock_guard lock(all.mutex);
    const auto found = all.factories.find(name);
    if (found != all.factories.end()) return found->second;
  }
  if (name.empty()) {
    throw_usage(cat("custom-policy: policy custom needs the name of a registered policy; ",
                    registered_text()));
  }
  throw_usage(cat("custom-policy ", quote(name), ": no policy of that name was registered; ",
                  registered_text()));
}

}  // namespace

void register_policy(const std::string& name, PolicyFactory factory) {
  if (!is_name(name)) {
    throw_usage(cat("register_policy ", quote(name),
                    ": a name has 1 to 64 small letters, digits and dashes"));
  }
  if (!factory) {
    throw_usage(cat("register_policy ", quote(name),
                    ": the factory is empty; give a function that makes the policy"));
  }
  const auto refuse = [&](const char* by) {
    throw_usage(cat("register_policy ", quote(name), ": the name is taken by ", by,
                    "; choose another than ", joined(policy_names()), ", custom"));
  };
  for (const Policy policy : named_policies()) {
    if (name == name_of(policy)) refuse("coppice");
  }
  if (name == name_of(Policy::custom)) refuse("coppice");
  auto shared = std::make_shared<const PolicyFactory>(std::move(factory));
  bool added = false;
  {
    Registry& all = registry();
    const std::lock_guard lock(all.mutex);
    added = all.factories.try_emplace(name, std::move(shared)).second;
  }
  if (!added) refuse("a policy registered before");
}

std::vector<std::string> registered_policies() {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& [name, factory] : all.factories) names.push_back(name);
  return names;
}

std::vector<std::string> policy_names() {
  std::vector<std::string> names;
  for (const Policy policy : named_policies()) names.emplace_back(name_of(policy));
  const std::vector<std::string> registered = registered_policies();
  names.insert(names.end(), registered.begin(), registered.end());
  return names;
}

void choose_policy(GenerateOptions& options, const std::string& name) {
  for (const Policy policy : named_policies()) {
    if (name != name_of(policy)) continue;
    options.policy = policy;
    options.custom_policy.clear();
    return;
  }
  const std::vector<std::string> names = policy_names();
  if (std::find(names.begin(), names.end(), name) == names.end()) {
    throw_usage(cat("policy ", quote(name), " is unknown; use one of ", joined(names)));
  }
  options.policy = Policy::custom;
  options.custom_policy = name;
}

void require_registered(const std::string& name) { factory_of(name); }

std::unique_ptr<DraftPolicy> make_registered_policy(const std::string& name, ChildDraw draw) {
  const std::shared_ptr<const PolicyFactory> factory = factory_of(name);
  std::unique_ptr<CustomPolicy> policy;
  try {
    policy = (*factory)();
  } catch (const Error&) {
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    throw_failure(cat("policy ", name, ": its factory threw ", quote(error.what())));
  } catch (...) {
    throw_failure(cat("policy ", name, ": its factory threw what is no std::exception"));
  }
  if (policy == nullptr) {
    throw_failure(cat("policy ", name, ": its factory returned nothing; return a policy"));
  }
  return adapt_policy(name, std::move(policy), draw);
}

}  // namespace coppice
