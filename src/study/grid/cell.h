// One setting of a study: everything of a request that the grid varies; and what studies call
// policies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "coppice.h"
#include "engine/policy_options.h"
#include "study/files/member_list.h"

namespace coppice::study {

/// PolicyOptions without an acceptance vector: that is measured.
struct Cell : PolicyOptions {
  double temperature = 0.0;
  double draft_temperature = -1.0;  ///< below 0: as the engine chooses it
  Acceptance acceptance = Acceptance::rejection;
  std::uint64_t seed = 0;
  std::int32_t given_size = 0;  ///< draft tokens of `widths` or `tree`; for people

  bool plain() const { return policy == Policy::none; }
  /// As --policies takes it: "dyspec-plain".
  std::string name() const;
  /// Names the cell without its seed, which is what tables have rows for: "dyspec size=16
  /// temperature=0.6 acceptance=rejection". Equal cells have equal names.
  std::string row_key() const;
  /// Names the cell.
  std::string key() const;
  /// Draft tokens asked for, or of the tree that is given; 0: chosen from costs.
  std::int32_t asked_size() const { return tree_size > 0 ? tree_size : given_size; }
  /// The same, "auto" where they are chosen from costs, "" for plain decoding.
  std::string size_text() const;
  /// Short, for legends: "dyspec 16", "chain auto".
  std::string label() const;
  /// The row of plain decoding that this cell's speed is compared with.
  std::string plain_row_key() const;
  /// `shared`: what all requests of a study share, which are length, filters and penalty.
  GenerateOptions request(GenerateOptions shared) const;
  /// Visits each option that some policies take, with its name as files have it and the member:
  /// visit(PolicyOption::tree_depth, "tree_depth", &PolicyOptions::tree_depth).
  static void for_each_option(auto visit) {
    visit(PolicyOption::tree_depth, "tree_depth", &PolicyOptions::tree_depth);
    visit(PolicyOption::beam_width, "beam_width", &PolicyOptions::beam_width);
    visit(PolicyOption::threshold, "threshold", &PolicyOptions::threshold);
    visit(PolicyOption::widths, "widths", &PolicyOptions::widths);
    visit(PolicyOption::tree, "tree", &PolicyOptions::tree);
  }

  /// All but the policy, which stands first in a file.
  COPPICE_MEMBERS(tree_size, given_size, temperature, draft_temperature, acceptance, seed,
                  tree_depth, beam_width, threshold, widths, tree)
};

// Values of options as texts, empty for those that are not given.
std::string option_text(std::int32_t count);
std::string option_text(double number);
std::string option_text(const std::vector<std::int32_t>& widths);
std::string option_text(const std::filesystem::path& file);

void to_json(nlohmann::ordered_json& json, const Cell& cell);
/// Throws what nlohmann::json throws, or Error, for anything that to_json() does not make.
void from_json(const nlohmann::json& json, Cell& cell);

/// Plain decoding under the temperature, acceptance and seed of `cell`.
Cell plain_of(const Cell& cell);

/// coppice's own names, and "dyspec-plain" and "dyspec-threshold-plain": the same policies with
/// plain values.
std::vector<std::string> study_policy_names();

/// Policy and plain_values by such a name, all else as it is by default. Throws Error(usage), which
/// lists all names, for any other.
PolicyOptions policy_named(const std::string& name);

/// The name for which policy_named() gives these.
std::string policy_name(Policy policy, bool plain_values);

/// What of `given` the policy takes; a shape that is given whole takes no depth. Without tree_size.
PolicyOptions taken_by(Policy policy, const PolicyOptions& given);
/// Throws Error(usage) for an option in `given` that none of the `chosen` policies takes, and that
/// would change nothing.
void require_takers(const PolicyOptions& given, const std::vector<Policy>& chosen);
/// The same of an option of this name, without dashes, that `takers` alone take.
void require_any(const std::string& option, const std::vector<Policy>& takers,
                 const std::vector<Policy>& chosen);

}  // namespace coppice::study
