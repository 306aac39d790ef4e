#include "study/grid/cell.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "study/files/members.h"

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

std::string number_text(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return std::string(text.data(), end);
}

std::string Cell::name() const { return policy_name(policy, custom_policy, plain_values); }

std::string Cell::row_key() const {
  std::string key = name();
  if (!plain()) {
    if (widths.empty() && tree.empty()) {
      key += cat(" size=", tree_size > 0 ? std::to_string(tree_size) : "auto");
    }
    if (tree_depth > 0) key += cat(" depth=", tree_depth);
    if (beam_width > 0) key += cat(" beam=", beam_width);
    if (threshold > 0.0) key += cat(" threshold=", number_text(threshold));
    for (std::size_t i = 0; i < widths.size(); ++i) {
      key += cat(i == 0 ? " widths=" : ",", widths[i]);
    }
    if (!tree.empty()) key += cat(" tree=", quote(tree.string()));
  }
  key += cat(" temperature=", number_text(temperature));
  if (!plain() && draft_temperature >= 0.0) {
    key += cat(" draft-temperature=", number_text(draft_temperature));
  }
  key += cat(" acceptance=", name_of(acceptance));
  return pair.empty() ? key : cat(key, " pair=", pair);
}

std::string Cell::key() const { return cat(row_key(), " seed=", seed); }

std::string Cell::size_text() const {
  if (plain()) return {};
  const std::int32_t size = tree_size > 0 ? tree_size : given_size;
  return size > 0 ? std::to_string(size) : "auto";
}

std::string Cell::label() const { return plain() ? "plain" : cat(name(), " ", size_text()); }

void to_json(nlohmann::ordered_json& json, const Cell& cell) {
  json["policy"] = cell.name();
  to_json<nlohmann::ordered_json, Cell>(json, cell);
}

void from_json(const nlohmann::json& json, Cell& cell) {
  const auto policy = json.at("policy").get<std::string>();
  cell = {};
  from_json<nlohmann::json, Cell>(json, cell);
  cell.policy = Policy::custom;  // registered names may be of another program
  cell.custom_policy = policy;
  const bool plain_values = policy.ends_with("-plain");
  for (const Policy one : named_policies()) {
    if (policy_name(one, "", plain_values) != policy) continue;
    cell.policy = one;
    cell.custom_policy.clear();
    cell.plain_values = plain_values;
  }
}

Cell plain_of(const Cell& cell) {
  Cell plain;
  plain.temperature = cell.temperature;
  plain.acceptance = cell.acceptance;
  plain.seed = cell.seed;
  plain.pair = cell.pair;
  return plain;
}

std::string Cell::plain_row_key() const { return plain_of(*this).row_key(); }

GenerateOptions Cell::request(const SharedOptions& shared) const {
  GenerateOptions options;
  options.max_new_tokens = shared.max_new_tokens;
  options.repetition_penalty = shared.repetition_penalty;
  options.top_k = shared.top_k;
  options.top_p = shared.top_p;
  options.min_p = shared.min_p;
  options.ignore_eos = shared.ignore_eos;
  options.temperature = temperature;
  options.draft_temperature = draft_temperature;
  options.acceptance = acceptance;
  options.seed = seed;
  options.policy = policy;
  options.custom_policy = custom_policy;
  options.plain_values = plain_values;
  options.tree_size = tree_size;
  options.tree_depth = tree_depth;
  options.beam_width = beam_width;
  options.threshold = threshold;
  options.widths = widths;
  options.tree = tree;
  return options;
}

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
