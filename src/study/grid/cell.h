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

namespace coppice::study {

/// What all requests of a study share.
struct SharedOptions {
  std::int32_t max_new_tokens = 128;
  double repetition_penalty = 1.0;
  std::int32_t top_k = 0;
  double top_p = 1.0;
  double min_p = 0.0;
  bool ignore_eos = false;
};

/// PolicyOptions without an acceptance vector: that is measured.
struct Cell : PolicyOptions {
  double temperature = 0.0;
  double draft_temperature = -1.0;  ///< below 0: as the engine chooses it
  Acceptance acceptance = Acceptance::rejection;
  std::uint64_t seed = 0;
  std::int32_t given_size = 0;  ///< draft tokens of `widths` or `tree`; for people
  std::string pair;             ///< name of the models; empty where a study has one pair

  bool plain() const { return policy == Policy::none; }
  /// As --policies takes it: "dyspec-plain".
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

/// Throws Error(usage) where none of the `chosen` policies takes an option that was given, and
/// would change nothing.
void require_chosen(PolicyOption option, const std::vector<Policy>& chosen);
/// The same of an option of this name, without dashes, that `taker` alone takes.
void require_chosen(const std::string& option, Policy taker, const std::vector<Policy>& chosen);

}  // namespace coppice::study
