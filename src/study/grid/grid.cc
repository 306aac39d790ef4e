#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "engine/check_speculation.h"
#include "engine/tree_plan.h"
#include "study/grid/cell.h"
#include "study/grid/settings.h"
#include "study/number_text.h"

namespace coppice::study {
namespace {

template <typename T>
void require_some(const std::vector<T>& list, const char* option) {
  if (list.empty()) throw_usage(cat(option, ": the list is empty; give at least one"));
}

using Policies = std::vector<PolicyOptions>;  // of each, policy and plain_values

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
  cell.draft_temperature = lists.draft_temperature;
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
