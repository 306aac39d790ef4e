#include "study/grid/grid.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "engine/check_speculation.h"
#include "engine/tree_plan.h"
#include "study/figures/text.h"
#include "study/files/members.h"

namespace coppice::study {
namespace {

using Policies = std::vector<PolicyOptions>;  // of each, what its name says

PolicyOptions lookup_alone() {
  PolicyOptions alone;
  alone.policy = Policy::dyspec;
  alone.looks_up = true;
  alone.drafts = false;
  return alone;
}

Policies study_policies() {
  Policies all;
  for (const bool looks_up : {false, true}) {
    for (const Policy policy : all_policies()) {
      if (looks_up && !takes(policy, PolicyOption::lookup)) continue;
      for (const bool plain_values : {false, true}) {
        if (plain_values && !takes(policy, PolicyOption::plain_values)) continue;
        PolicyOptions& one = all.emplace_back();
        one.policy = policy;
        one.plain_values = plain_values;
        one.looks_up = looks_up;
      }
    }
  }
  all.push_back(lookup_alone());
  return all;
}

}  // namespace

std::string option_text(std::int32_t count) { return count > 0 ? std::to_string(count) : ""; }
std::string option_text(double number) { return number > 0.0 ? number_text(number) : ""; }
std::string option_text(const std::vector<std::int32_t>& widths) {
  std::string text;
  for (const std::int32_t width : widths) text += cat(text.empty() ? "" : " ", width);
  return text;
}
std::string option_text(const std::filesystem::path& file) { return file.string(); }

std::string Cell::name() const { return policy_name(*this); }

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

bool is_plain_key(std::string_view key) {
  return key.substr(0, key.find(' ')) == name_of(Policy::none);
}

std::string Cell::plain_row_key() const { return plain_of(*this).row_key(); }

GenerateOptions Cell::request(GenerateOptions shared) const {
  shared.sampling.temperature = temperature;
  if (draft_temperature >= 0.0) shared.draft_temperature = draft_temperature;
  shared.acceptance = acceptance;
  shared.seed = seed;
  set_policy(shared, *this);
  return shared;
}

std::vector<std::string> study_policy_names() {
  std::vector<std::string> names;
  for (const PolicyOptions& one : study_policies()) {
    names.push_back(policy_name(one));
  }
  return names;
}

PolicyOptions policy_named(const std::string& name) {
  std::string names;
  for (const PolicyOptions& one : study_policies()) {
    const std::string own = policy_name(one);
    if (own == name) return one;
    names += (names.empty() ? "" : ", ") + own;
  }
  throw_usage(cat("--policies ", quote(name), " is unknown; use ", names));
}

std::string policy_name(const PolicyOptions& options) {
  if (!options.drafts) return "lookup";
  return cat(name_of(options.policy), options.plain_values ? "-plain" : "",
             options.looks_up ? "+lookup" : "");
}

std::string policy_name(Policy policy) {
  PolicyOptions options;
  options.policy = policy;
  return policy_name(options);
}

void set_policy(GenerateOptions& request, const PolicyOptions& options) {
  request.speculation = speculation_of(options);
  request.lookup = options.looks_up ? Lookup::text : Lookup::none;
  request.use_draft = options.drafts;
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

namespace {

template <typename T>
void require_some(const std::vector<T>& list, const char* option) {
  if (list.empty()) throw_usage(cat(option, ": the list is empty; give at least one"));
}

Policies policies_of(const GridLists& lists) {
  Policies policies;
  for (const std::string& name : lists.policies) policies.push_back(policy_named(name));
  return policies;
}

void check_lists(const GridLists& lists, const Policies& policies) {
  require_some(lists.policies, "--policies");
  require_some(lists.tree_sizes, "--tree-sizes");
  require_some(lists.temperatures, "--temperatures");
  require_some(lists.acceptances, "--acceptance");
  require_some(lists.seeds, "--seeds");
  for (const std::int32_t size : lists.tree_sizes) {
    if (size < 0 || size > largest_tree_size) {
      throw_usage(cat("--tree-sizes ", size, ": use 1 to ", largest_tree_size, ", or auto"));
    }
  }
  std::vector<Policy> chosen;
  for (const PolicyOptions& one : policies) chosen.push_back(one.policy);
  // One option of a request, but a study may have both policies, each with its own file.
  PolicyOptions given = lists.options;
  given.tree.clear();
  require_takers(given, chosen);
  if (!lists.options.tree.empty()) require_any("tree", {Policy::static_tree}, chosen);
  if (!lists.grow_map.empty()) require_any("grow-map", {Policy::sequoia}, chosen);
}

bool is_shaped(const Cell& cell) { return !cell.widths.empty() || !cell.tree.empty(); }

/// The cell of `policy` at `size`; `base` has what does not depend on the policy.
Cell cell_of(const GridLists& lists, const Cell& base, const PolicyOptions& chosen,
             std::int32_t size) {
  PolicyOptions given = lists.options;
  if (chosen.policy == Policy::sequoia) given.tree = lists.grow_map;
  Cell cell = base;
  static_cast<PolicyOptions&>(cell) = taken_by(chosen.policy, given);
  cell.plain_values = chosen.plain_values;
  cell.looks_up = chosen.looks_up;
  cell.drafts = chosen.drafts;
  if (cell.drafts) cell.draft_temperature = lists.draft_temperature;
  cell.tree_size = is_shaped(cell) ? 0 : size;
  return cell;
}

/// Gives a tree of fixed size its number, so that "auto" names one thing: what costs choose.
void settle_size(Cell& cell, const GenerateOptions& shared) {
  const Speculation speculation = cell.request(shared).speculation;
  if (cell.tree_size > 0 || sized_by_costs(speculation)) return;
  SequoiaTrees sequoia_trees;
  const std::int32_t size = plan_trees(speculation, largest_tree_size, sequoia_trees).size;
  (is_shaped(cell) ? cell.given_size : cell.tree_size) = size;
}

std::string refused(const Cell& cell, const GenerateOptions& shared) {
  try {
    cell.request(shared).validate();
    return {};
  } catch (const Error& error) {
    if (error.kind() != ErrorKind::usage) throw;
    return error.what();
  }
}

}  // namespace

Grid make_grid(const GridLists& lists, const GenerateOptions& shared) {
  const Policies policies = policies_of(lists);
  check_lists(lists, policies);
  Grid grid;
  std::set<std::string> known;
  std::set<std::string> noted;
  std::map<std::string, std::string> why_refused;  // by policy's name, of one of its cells
  std::set<std::string> studied;
  const auto note = [&](const std::string& line) {
    if (noted.insert(line).second) grid.notes.push_back(line);
  };
  const auto add = [&](const Cell& cell) {
    if (known.insert(cell.key()).second) grid.cells.push_back(cell);
  };
  for (const std::uint64_t seed : lists.seeds) {
    for (const double temperature : lists.temperatures) {
      for (const Acceptance acceptance : lists.acceptances) {
        const bool greedy = temperature == 0.0;
        if (greedy && acceptance != Acceptance::rejection) {
          note(cat("left out: ", name_of(acceptance), " acceptance at temperature 0, where it ",
                   "makes no difference"));
        }
        Cell base;
        base.temperature = temperature;
        base.acceptance = greedy ? Acceptance::rejection : acceptance;
        base.seed = seed;
        // What is out of range is so for every policy; the draft's temperature too.
        GenerateOptions values = base.request(shared);
        if (lists.draft_temperature >= 0.0) values.draft_temperature = lists.draft_temperature;
        values.validate();
        add(base);
        for (const PolicyOptions& policy : policies) {
          if (policy.policy == Policy::none) continue;
          for (const std::int32_t size : lists.tree_sizes) {
            Cell cell = cell_of(lists, base, policy, size);
            const std::string why = refused(cell, shared);
            if (why.empty()) {
              studied.insert(cell.name());
              settle_size(cell, shared);
              add(cell);
            } else {
              why_refused.emplace(cell.name(), why);
              // What plain values ask of the size they ask at every temperature.
              note(cat("left out: ", cell.name(),
                       cell.plain_values ? std::string(" of automatic size")
                                         : cat(" at temperature ", number_text(temperature), ", ",
                                               name_of(acceptance), " acceptance"),
                       ": ", why));
            }
          }
        }
      }
    }
  }
  for (const auto& [name, why] : why_refused) {
    if (!studied.contains(name)) throw_usage(cat("--policies ", name, ": ", why));
  }
  return grid;
}

}  // namespace coppice::study
