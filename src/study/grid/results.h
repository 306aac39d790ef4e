// What prompts under cells brought, and results.jsonl: one line per result, on the disk before the
// next one is worked on.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/appended_file.h"
#include "base/step_seconds.h"
#include "coppice.h"
#include "study/files/member_list.h"
#include "study/grid/grid.h"
#include "study/grid/node_counts.h"
#include "study/prompts/prompts.h"

namespace coppice::study {

/// Seconds of wall clock by component; their sum is the generation, loading left out.
struct Components : StepSeconds {
  double prefill = 0.0;  ///< both models' passes over the prompt, first token included
  double other = 0.0;    ///< after prefill, outside of steps

  static void members(auto& self, auto visit) {
    for (const auto& [name, part] : parts) visit(name, self.*part);
  }
  static const std::pair<const char*, double Components::*> parts[7];
  /// The parts of a step's time.
  static std::span<const std::pair<const char*, double Components::*>> of_step() {
    return std::span(parts).subspan(1);
  }
  /// All after prefill.
  double decode() const;
  Components& operator+=(const Components& others);
};

inline constexpr std::pair<const char*, double Components::*> Components::parts[] = {
    {"prefill", &Components::prefill}, {"draft", &Components::draft},
    {"drawing", &Components::drawing}, {"construction", &Components::construction},
    {"verify", &Components::verify},   {"judging", &Components::judging},
    {"other", &Components::other}};

/// One turn of a conversation; most prompts have one.
struct Turn {
  /// All tokens before the new ones, BOS and earlier turns included.
  std::int32_t prompt_tokens = 0;
  std::int32_t prefill_tokens = 0;  ///< of the new ones, those that came with prefill
  std::vector<TokenId> tokens;      ///< new ones
  std::string text;                 ///< theirs
  std::string finish_reason;

  COPPICE_MEMBERS(prompt_tokens, prefill_tokens, tokens, text, finish_reason)
};

struct Result {
  std::string cell;         ///< Cell::key()
  std::string prompt;       ///< PromptName::id
  std::int32_t round = 0;   ///< from 0
  std::vector<Turn> turns;  ///< at least one; fewer than the prompt's if the memory ended one
  std::int64_t draft_passes = 0;
  std::int64_t looked_up = 0;  ///< of all trees' draft tokens, those that were looked up
  Components seconds;
  NodeCounts nodes;
  // By step, through all turns:
  std::vector<std::int32_t> tree_sizes;  ///< draft tokens
  std::vector<std::int32_t> accepted;    ///< draft tokens, up to an end token if there was one
  std::vector<std::int32_t> kept;        ///< these, and the bonus token if no end token was before
  std::string device, dtype;
  std::string run;  ///< Provenance::id of the run that made it

  COPPICE_MEMBERS(cell, prompt, round, turns, draft_passes, looked_up, seconds, nodes, tree_sizes,
                  accepted, kept, device, dtype, run)

  std::int64_t tokens() const;  ///< new ones of all turns
  /// Counts those of the tokens that decoding brought and not prefill.
  std::int64_t decoded() const;
  std::int64_t steps() const { return static_cast<std::int64_t>(accepted.size()); }
  std::int64_t drafted() const;  ///< draft tokens of all trees
  std::int64_t accepted_drafts() const;
  /// Tokens of all steps: those that decoded() counts, and the end token of each turn that a step
  /// ended with one.
  std::int64_t kept_tokens() const;
};

/// An order that does not depend on who was faster.
inline auto in_order(const Result* result) {
  return std::tie(result->prompt, result->round, result->cell, result->run);
}

/// A line that stands in the file and its number there, from 1.
struct StoredLine {
  std::int64_t number;
  std::string text;  ///< the object as it was appended, its checksum checked
};

/// The whole lines of a file of results, which have checksums (base/checked_lines.h). A last line
/// without its end, left by a run that was killed while it wrote, is no error: `whole_bytes` is
/// where it begins. Throws Error(failure) that names the first line that was changed, and for a
/// file that cannot be read.
std::vector<StoredLine> read_results(const std::filesystem::path& file,
                                     std::uintmax_t* whole_bytes = nullptr);

/// What a study consists of: every cell on every prompt in every round.
struct StudyPlan {
  std::vector<Cell> cells;
  std::vector<PromptName> prompts;
  std::int32_t rounds = 1;

  COPPICE_MEMBERS(rounds, cells, prompts)
};

enum class Access { read, append };

/// Results in memory and on the disk. One process and one thread at a time append.
class Results {
 public:
  /// Reads the file. To append, it is created if it is missing, and a torn last line is cut off.
  /// Results that the plan does not ask for stay in the file and are counted. Throws Error(failure)
  /// as read_results() does, and one that names the line for anything that is no result, and for
  /// one that stands there twice; with the file as it was. Plain decoding may stand there once for
  /// each run, since a merged study keeps that of each study.
  Results(const std::filesystem::path& file, const StudyPlan& plan, Access access = Access::read);

  bool has(const std::string& cell, const std::string& prompt, std::int32_t round) const {
    return done_.contains({cell, prompt, round});
  }

  /// To the disk first, which is waited for. Throws Error(failure) for a full disk and the like,
  /// with nothing added and the lines before as they were.
  void add(Result result);

  const StudyPlan& plan() const { return plan_; }
  const std::vector<Result>& results() const { return results_; }
  /// Results in the file of other settings, prompts or rounds.
  std::int64_t others() const { return others_; }

 private:
  std::optional<AppendedFile> file_;
  StudyPlan plan_;
  std::vector<Result> results_;
  std::set<std::tuple<std::string, std::string, std::int32_t>> done_;  ///< cell, prompt, round
  std::int64_t others_ = 0;
};

}  // namespace coppice::study
