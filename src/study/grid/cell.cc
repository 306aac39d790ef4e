#include "study/grid/cell.h"

#include <algorithm>

#include "base/error.h"
#include "study/files/members.h"
#include "study/number_text.h"

namespace coppice::study {

std::string option_text(std::int32_t count) { return count > 0 ? std::to_string(count) : ""; }
std::string option_text(double number) { return number > 0.0 ? number_text(number) : ""; }
std::string option_text(const std::vector<std::int32_t>& widths) {
  std::string text;
  for (const std::int32_t width : widths) text += cat(text.empty() ? "" : " ", width);
  return text;
}
std::string option_text(const std::filesystem::path& file) { return file.string(); }

std::string Cell::name() const { return policy_name(policy, plain_values); }

std::string Cell::row_key() const {
  std::string key = name();
  if (!plain()) {
    if (widths.empty() && tree.empty()) {
      key += cat(" size=", tree_size > 0 ? std::to_string(tree_size) : "auto");
    }
    for_each_option([&](PolicyOption, const char* option, auto member) {
      const std::string text = option_text(this->*member);
      if (!text.empty()) key += cat(' ', option, '=', text);
    });
  }
  key += cat(" temperature=", number_text(temperature));
  if (!plain() && draft_temperature >= 0.0) {
    key += cat(" draft-temperature=", number_text(draft_temperature));
  }
  return cat(key, " acceptance=", name_of(acceptance));
}

std::string Cell::key() const { return cat(row_key(), " seed=", seed); }

std::string Cell::size_text() const {
  if (plain()) return {};
  return asked_size() > 0 ? std::to_string(asked_size()) : "auto";
}

std::string Cell::label() const { return plain() ? "plain" : cat(name(), " ", size_text()); }

void to_json(nlohmann::ordered_json& json, const Cell& cell) {
  json["policy"] = cell.name();
  to_json<nlohmann::ordered_json, Cell>(json, cell);
}

void from_json(const nlohmann::json& json, Cell& cell) {
  cell = {};
  static_cast<PolicyOptions&>(cell) = policy_named(json.at("policy").get<std::string>());
  from_json<nlohmann::json, Cell>(json, cell);
}

Cell plain_of(const Cell& cell) {
  Cell plain;
  plain.temperature = cell.temperature;
  plain.acceptance = cell.acceptance;
  plain.seed = cell.seed;
  return plain;
}

std::string Cell::plain_row_key() const { return plain_of(*this).row_key(); }

GenerateOptions Cell::request(GenerateOptions shared) const {
  shared.sampling.temperature = temperature;
  if (draft_temperature >= 0.0) shared.draft_temperature = draft_temperature;
  shared.acceptance = acceptance;
  shared.seed = seed;
  shared.speculation = speculation_of(*this);
  return shared;
}

std::vector<std::string> study_policy_names() {
  std::vector<std::string> names;
  for (const Policy policy : all_policies()) {
    names.push_back(policy_name(policy, false));
    if (takes(policy, PolicyOption::plain_values)) names.push_back(policy_name(policy, true));
  }
  return names;
}

PolicyOptions policy_named(const std::string& name) {
  PolicyOptions options;
  for (const Policy policy : all_policies()) {
    for (const bool plain_values : {false, true}) {
      if (plain_values && !takes(policy, PolicyOption::plain_values)) continue;
      if (name != policy_name(policy, plain_values)) continue;
      options.policy = policy;
      options.plain_values = plain_values;
      return options;
    }
  }
  std::string names;
  for (const std::string& one : study_policy_names()) names += (names.empty() ? "" : ", ") + one;
  throw_usage(cat("--policies ", quote(name), " is unknown; use ", names));
}

std::string policy_name(Policy policy, bool plain_values) {
  return cat(name_of(policy), plain_values ? "-plain" : "");
}

PolicyOptions taken_by(Policy policy, const PolicyOptions& given) {
  PolicyOptions taken;
  taken.policy = policy;
  Cell::for_each_option([&](PolicyOption option, const char*, auto member) {
    if (takes(policy, option)) taken.*member = given.*member;
  });
  if (!taken.widths.empty() || !taken.tree.empty()) taken.tree_depth = 0;
  return taken;
}

void require_takers(const PolicyOptions& given, const std::vector<Policy>& chosen) {
  Cell::for_each_option([&](PolicyOption option, const char*, auto member) {
    if (given.*member != PolicyOptions().*member) {
      require_any(name_of(option), takers_of(option), chosen);
    }
  });
}

void require_any(const std::string& option, const std::vector<Policy>& takers,
                 const std::vector<Policy>& chosen) {
  if (std::ranges::find_first_of(chosen, takers) != chosen.end()) return;
  throw_usage(cat("--", option, ": it belongs to policy ", names_of(takers, " or "),
                  ", which --policies does not name; leave it out, or name the policy there"));
}

}  // namespace coppice::study
