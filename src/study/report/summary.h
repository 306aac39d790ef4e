// From results to the rows of a study's tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "study/grid/agreement.h"
#include "study/grid/grid.h"
#include "study/grid/results.h"
#include "study/report/depths.h"
#include "study/report/plain_pace.h"
#include "study/report/verdict.h"
#include "study/statistics.h"

namespace coppice::study {

/// One cell, all of its seeds and rounds together, over all prompts or those of one kind. All are
/// ratios of sums over prompts.
///
/// Speed-ups compare with plain decoding of the same prompts under the same temperature and
/// acceptance, in the same rounds and, where it is there, of the same run. Tokens are new ones.
/// Without prefill, both prefill's time and the token that comes with it are left out.
struct SummaryRow {
  Cell cell;         ///< its seed means nothing
  std::string kind;  ///< empty: all prompts
  std::int32_t prompts = 0;
  std::int32_t runs = 0;  ///< texts: prompts by seeds by rounds
  /// As `coppice generate` prints it: tokens kept per target pass after prefill, the bonus token
  /// and an end token included, and none behind an end token.
  Estimate accepted_length;
  Estimate acceptance_rate;    ///< accepted draft tokens of those that the judge examined, up to
                               ///< an end token
  Estimate accepted_share;     ///< the same of all drafted
  Estimate tokens_per_second;  ///< without prefill
  /// (All tokens / all seconds) over the same of plain decoding, without prefill.
  Estimate speedup;
  Estimate speedup_with_prefill;  ///< whole generations, loading left out
  /// Spec-Bench's convention: each text's new tokens by its seconds, prefill included, and the mean
  /// of that over texts; and this mean over that of plain decoding.
  Estimate specbench_tokens_per_second, specbench_speedup;
  /// Means over rounds with t-intervals: how far times alone move, the texts being the same.
  /// Without an interval below least_rounds.
  Estimate rounds_tokens_per_second, rounds_speedup;
  /// Steps by tokens kept: [0] is 0, [1] counts steps of which only the bonus token came, or an end
  /// token.
  std::vector<std::int64_t> lengths;
  std::vector<DepthRate> depths;  ///< from depth 1; empty for kinds of prompts
  double draft_passes = 0.0;      ///< per step, the draft's prefill included
  double tree_size = 0.0;         ///< per step
  double looked_up = 0.0;         ///< of these; how many are accepted says `nodes`
  Components seconds;
  std::int64_t tokens = 0, steps = 0;
  NodeCounts nodes;
  /// Texts that plain decoding did not write in their own run of the program, of an extended study:
  /// their speed-up is one of two times of the machine.
  std::int64_t other_runs = 0;
  std::string runs_print;  ///< equal for rows whose texts the same runs wrote, text by text
  std::string run;         ///< places in Summary::runs, from 1: "1, 2"; empty if that is

  double microseconds_per_step(double seconds_of_part) const;
  /// Per step.
  double looked_up_accepted() const;
};

struct Summary {
  std::vector<SummaryRow> rows;   ///< over all prompts, in the grid's order
  std::vector<SummaryRow> kinds;  ///< kind by kind, where prompts have several
  /// Every two speculative rows of the same temperature and acceptance rule; places are those in
  /// `rows`. One family for Holm: all of them.
  std::vector<Comparison> comparisons;
  std::vector<Agreement> agreements;
  std::vector<Verdict> verdicts;
  /// When runs began whose texts plain decoding wrote for each by itself, as in a merged study: it
  /// has a row for each of them. Empty: one row for all.
  std::vector<std::string> runs;
  PlainPace pace;
};

/// Whether what tells two rows' speeds apart may be the machine's state in two runs.
bool compares_runs(const SummaryRow& a, const SummaryRow& b);

/// What rows were made from, for readers: "24 prompts, 96 texts, 12,288 tokens, 4,105 target
/// passes". Empty for none.
std::string counted(std::span<const SummaryRow* const> rows);
std::string counted(const std::vector<SummaryRow>& rows);

/// Only prompts that all cells have been run on, in all rounds, are counted. Does not depend on the
/// results' order.
Summary summarise(const Results& results);

/// The prompts of `results` that summarise() counts, in the plan's order.
std::vector<std::string> complete_prompts(const Results& results);

/// One cell for each row of a plan, in order.
std::vector<const Cell*> rows_of(const StudyPlan& plan);

/// What the row of that key brought on those prompts, for compare_rows(). All of its seeds and
/// rounds together. Every one of the prompts must be complete.
PromptColumns columns_of(const Results& results, const std::string& row_key,
                         std::span<const std::string> prompts);

}  // namespace coppice::study
