// One setting of a study: everything of a request that the grid varies; and what studies call
// policies.
#pragma once

#include <cstdint>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "coppice.h"
#include "engine/policy_table.h"

namespace coppice::study {

/// A number in as few digits as name it, whatever the locale.
std::string number_text(double number);

/// What all requests of a study share.
struct SharedOptions {
  std::int32_t max_new_tokens = 128;
  double repetition_penalty = 1.0;
  std::int32_t top_k = 0;
  double top_p = 1.0;
  double min_p = 0.0;
  bool ignore_eos = false;
};

struct Cell {
  Policy policy = Policy::none;
  std::string custom_policy;   ///< custom: the name it was registered by
  bool plain_values = false;   ///< dyspec, dyspec_threshold: as in GenerateOptions
  std::int32_t tree_size = 0;  ///< draft tokens; 0: automatic, or as the tree or widths say
  double temperature = 0.0;
  double draft_temperature = -1.0;  ///< below 0: as the engine chooses it
  Acceptance acceptance = Acceptance::rejection;
  std::uint64_t seed = 0;
  // Of the policies that know them; else as in GenerateOptions.
  std::int32_t tree_depth = 0;
  std::int32_t beam_width = 0;
  double threshold = 0.0;
  std::vector<std::int32_t> widths;
  std::filesystem::path tree;
  std::int32_t given_size = 0;  ///< draft tokens of `widths` or `tree`; for people
  std::string pair;             ///< name of the models; empty where a study has one pair

  bool plain() const { return policy == Policy::none; }
  /// As --policies takes it (policy_name.h): "dyspec-plain", or a registered name.
  std::string name() const;
  /// Names the cell without its seed, which is what tables have rows for: "dyspec size=16
  /// temperature=0.6 acceptance=rejection". Equal cells have equal names.
  std::string row_key() const;
  /// Names the cell.
  std::string key() const;
  /// Draft tokens asked for, "auto" where they are chosen from costs, "" for plain decoding.
  std::string size_text() const;
  /// Short, for legends: "dyspec 16", "chain auto".
  std::string label() const;
  /// The row of plain decoding that this cell's speed is compared with.
  std::string plain_row_key() const;
  GenerateOptions request(const SharedOptions& shared) const;
  /// All but the policy, which stands first in a file.
  static void members(auto& self, auto visit) {
    visit("tree_size", self.tree_size);
    visit("given_size", self.given_size);
    visit("temperature", self.temperature);
    visit("draft_temperature", self.draft_temperature);
    visit("acceptance", self.acceptance);
    visit("seed", self.seed);
    visit("tree_depth", self.tree_depth);
    visit("beam_width", self.beam_width);
    visit("threshold", self.threshold);
    visit("widths", self.widths);
    visit("tree", self.tree);
    visit("pair", self.pair);
  }
};

void to_json(nlohmann::ordered_json& json, const Cell& cell);
/// Throws what nlohmann::json throws for anything that to_json() does not make.
void from_json(const nlohmann::json& json, Cell& cell);

/// Plain decoding under the temperature, acceptance and seed of `cell`.
Cell plain_of(const Cell& cell);

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
