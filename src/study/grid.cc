#include "study/grid.h"

#include <algorithm>
#include <initializer_list>
#include <map>
#include <optional>
#include <set>

#include "base/error.h"
#include "study/policy_name.h"
#include "tree_plan.h"

namespace coppice::study {
namespace {

template <typename T>
void require_some(const std::vector<T>& list, const char* option) {
  if (list.empty()) throw_usage(cat(option, ": the list is empty; give at least one"));
}

/// Of each, policy, custom_policy and calibrate.
using Policies = std::vector<GenerateOptions>;

Policies policies_of(const GridLists& lists) {
  Policies policies;
  for (const std::string& name : lists.policies) policies.push_back(policy_named(name));
  return policies;
}

void check_belongs(const Policies& studied, const char* option, bool given,
                   std::initializer_list<Policy> owners) {
  if (!given) return;
  std::string names;
  for (const Policy owner : owners) {
    if (std::any_of(studied.begin(), studied.end(),
                    [&](const GenerateOptions& one) { return one.policy == owner; })) {
      return;
    }
    names += cat(names.empty() ? "" : " or ",
                 owner == Policy::custom ? "a registered one" : name_of(owner));
  }
  throw_usage(cat(option, ": it belongs to policy ", names,
                  ", which is not studied; leave it out, or name the policy in --policies"));
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
  check_belongs(policies, "--threshold", lists.threshold != 0.0, {Policy::dyspec_threshold});
  check_belongs(policies, "--widths", !lists.widths.empty(), {Policy::specinfer});
  check_belongs(policies, "--tree", !lists.tree.empty(), {Policy::static_tree});
  check_belongs(policies, "--grow-map", !lists.grow_map.empty(), {Policy::sequoia});
  check_belongs(policies, "--tree-depth", lists.tree_depth != 0,
                {Policy::sequoia, Policy::expand_rerank, Policy::custom});
  check_belongs(policies, "--beam-width", lists.beam_width != 0, {Policy::expand_rerank});
}

/// The cell of `policy` at `size`; `base` has what does not depend on the policy.
Cell cell_of(const GridLists& lists, const Cell& base, const GenerateOptions& chosen,
             std::int32_t size) {
  const Policy policy = chosen.policy;
  Cell cell = base;
  cell.policy = policy;
  cell.custom_policy = chosen.custom_policy;
  cell.calibrate = chosen.calibrate;
  cell.draft_temperature = lists.draft_temperature;
  if (policy == Policy::specinfer) cell.widths = lists.widths;
  if (policy == Policy::static_tree) cell.tree = lists.tree;
  if (policy == Policy::sequoia) cell.tree = lists.grow_map;
  if (policy == Policy::dyspec_threshold) cell.threshold = lists.threshold;
  if (policy == Policy::expand_rerank) cell.beam_width = lists.beam_width;
  const bool shaped = !cell.widths.empty() || !cell.tree.empty();
  if ((policy == Policy::sequoia && !shaped) || policy == Policy::expand_rerank ||
      policy == Policy::custom) {
    cell.tree_depth = lists.tree_depth;
  }
  cell.tree_size = shaped ? 0 : size;
  return cell;
}

std::string refused(const Cell& cell, const SharedOptions& shared) {
  try {
    cell.request(shared).validate();
    return {};
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

Grid make_grid(const GridLists& lists, const SharedOptions& shared) {
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
        if (temperature == 0.0 && acceptance != lists.acceptances.front()) {
          note(cat("left out: ", name_of(acceptance), " acceptance at temperature 0, where it ",
                   "makes no difference"));
          continue;
        }
        Cell base;
        base.temperature = temperature;
        base.acceptance = acceptance;
        base.seed = seed;
        // What is out of range is so for every policy; the draft's temperature too.
        GenerateOptions values = base.request(shared);
        values.draft_temperature = lists.draft_temperature;
        values.validate();
        add(base);
        for (const GenerateOptions& policy : policies) {
          if (policy.policy == Policy::none) continue;
          for (const std::int32_t size : lists.tree_sizes) {
            const Cell cell = cell_of(lists, base, policy, size);
            const std::string why = refused(cell, shared);
            if (why.empty()) {
              studied.insert(cell.name());
              add(cell);
            } else {
              why_refused.emplace(cell.name(), why);
              // What learned acceptance asks of the size it asks at every temperature.
              note(cat("left out: ", cell.name(),
                       cell.calibrate ? std::string(" of automatic size")
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
