// What a study is asked for: its cells, what studies call policies, and how lists of options become
// cells.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "constraints/language.h"
#include "coppice.h"
#include "engine/policy_options.h"
#include "study/files/member_list.h"
#include "study/hooks.h"
#include "study/prompts/prompts.h"

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

/// Whether a Cell::key() names plain decoding.
bool is_plain_key(std::string_view key);

/// coppice's own names; with "-plain" behind them the same policies with plain values, and with
/// "+lookup" beside looked-up children ("dyspec-plain+lookup"). "lookup": dyspec without the draft,
/// of looked-up children alone.
std::vector<std::string> study_policy_names();

/// Policy, plain_values, looks_up and drafts by such a name, all else as it is by default. Throws
/// Error(usage), which lists all names, for any other.
PolicyOptions policy_named(const std::string& name);

/// The name for which policy_named() gives these.
std::string policy_name(const PolicyOptions& options);
std::string policy_name(Policy policy);

/// Has `request` speculate as `options` say.
void set_policy(GenerateOptions& request, const PolicyOptions& options);

/// What of `given` the policy takes; a shape that is given whole takes no depth. Without tree_size.
PolicyOptions taken_by(Policy policy, const PolicyOptions& given);
/// Throws Error(usage) for an option in `given` that none of the `chosen` policies takes, and that
/// would change nothing.
void require_takers(const PolicyOptions& given, const std::vector<Policy>& chosen);
/// The same of an option of this name, without dashes, that `takers` alone take.
void require_any(const std::string& option, const std::vector<Policy>& takers,
                 const std::vector<Policy>& chosen);

struct StudyRequest {
  std::filesystem::path prompts_file;  ///< by name, for people; its contents count
  std::vector<StudyPrompt> prompts;    ///< those that are studied
  std::vector<StudyPrompt> spare;      ///< those of the file that are not, and say nothing they say
  std::int32_t prompt_tokens = 0;      ///< most tokens of a turn of a prompt; 0: all
  std::vector<Cell> cells;
  std::vector<std::string> left_out;  ///< Grid::notes
  std::int32_t rounds = 1;
  GenerateOptions shared;  ///< length, filters and penalty of all cells
  std::shared_ptr<const constraints::Language> constraint;  ///< of all texts; null: none
  EngineOptions engine;
  /// What sequoia's trees are planned for (acceptance.h); empty: it is measured.
  std::filesystem::path acceptance_file;
  std::filesystem::path trace;  ///< file for every node of every tree (trace.h); empty: none
  std::string command;          ///< as a shell takes it; for people
};

// From lists of options to the cells of a study.

struct GridLists {
  /// By name (cell.h). "none" is always studied, named or not.
  std::vector<std::string> policies;
  std::vector<std::int32_t> tree_sizes = {0};
  std::vector<double> temperatures = {0.0};
  std::vector<Acceptance> acceptances = {Acceptance::rejection};
  std::vector<std::uint64_t> seeds = {0};
  double draft_temperature = -1.0;  ///< of all cells
  /// Each goes to the policies that take it; `tree` is static_tree's alone.
  PolicyOptions options = {};
  std::filesystem::path grow_map = {};  ///< sequoia's tree
};

struct Grid {
  std::vector<Cell> cells;  ///< for each seed, temperature and acceptance: plain, then the rest
  std::vector<std::string> notes;  ///< a line for what was left out, and why
};

/// The cross product of the lists, less what is named twice, what the engine refuses and what
/// would be the same again: at temperature 0, where acceptance makes no difference, it is
/// rejection, and a policy whose tree is given by `widths`, `tree` or `grow_map` has one size.
/// Throws Error(usage) for an empty list, a policy that has no such name, a value out of range, an
/// option that belongs to none of the policies, and a policy that is refused in all of its
/// combinations.
Grid make_grid(const GridLists& lists, const GenerateOptions& shared);

}  // namespace coppice::study
