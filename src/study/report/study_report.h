// A study as a web page, figures and tables.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "study/figures/chart.h"
#include "study/figures/report_page.h"
#include "study/grid/study_file.h"
#include "study/report/summary.h"

namespace coppice::study {

/// Whether texts agree where they must (agreement.h), in a sentence; empty if none must.
std::string agreement_sentence(const Summary& summary);

/// What the stars at speeds mean (SummaryRow::other_runs), in a sentence; empty if there are none.
std::string other_runs_sentence(const Summary& summary);
/// Which runs plain decoding has a row for (Summary::runs), in a sentence; empty if for none.
std::string runs_sentence(const Summary& summary);

// What speed-ups are, each in a line.
inline constexpr const char* speedup_definition =
    "tokens/s of all texts together, prefill left out, over that of plain decoding (ratio of sums)";
inline constexpr const char* specbench_definition =
    "mean over texts of each text's own tokens/s, prefill included, over that mean of plain "
    "decoding (as Spec-Bench's speed.py)";

/// Says why policy sequoia has no rows, or none at some temperature or rule; empty if it has.
/// `left_out`: what was not run, and why, a line each (study_file.h).
std::string sequoia_sentence(const Summary& summary, const std::vector<std::string>& left_out);

/// Writes into `folder`: report.html, one page that needs nothing else; its figures as
/// figures/*.svg; its tables as tables/*.csv and *.tex; and summary.csv and depths.csv. `facts`:
/// how it was made (study_file.h); `left_out` as above. Throws Error(failure) if they cannot be
/// written.
void write_report(const std::filesystem::path& folder, const Facts& facts,
                  const std::vector<std::string>& left_out, const Summary& summary);

// A study's tables, for its page and as files of their own.

/// What a setting brings: all rows, or those by kind of prompt.
Table summary_table(const std::vector<SummaryRow>& rows);
/// And what a step of it takes: means per step, and the shares of the time after prefill.
Table step_table(const Summary& summary);
/// Every figure unrounded, for programs.
Table summary_csv(const Summary& summary);
/// Every two settings against each other: differences of accepted length, ratios of speed, and p
/// after Holm.
Table comparison_table(const Summary& summary);
/// Speed-up with and without prefill; and over rounds, where there are several.
Table speedup_table(const Summary& summary);
/// How often accepted paths reach the first depths: a row for each setting that reached any, a
/// column for each depth.
Table depth_table(const Summary& summary, Estimate DepthRate::*rate);
/// The same of all depths, with counts and intervals, unrounded, for programs.
Table depths_csv(const Summary& summary);
/// Texts that must repeat plain decoding's: how many do.
Table agreement_table(const Summary& summary);
/// Where they do not.
Table divergence_table(const Summary& summary);

/// All that have rows, the results first.
std::vector<CaptionedTable> tables_of(const Summary& summary);

// The figures of a study.

/// What is drawn together: the settings of one temperature and acceptance rule.
struct FigureGroup {
  double temperature = 0.0;
  Acceptance acceptance = Acceptance::rejection;
  std::vector<const SummaryRow*> rows = {};  ///< speculative ones
  std::vector<std::string> policies = {};    ///< of the whole study, in its order

  /// Without a picture if the chart has no data. `n`: what it was made from, the group's n() if
  /// none is given; picture and caption say it.
  Figure named(const std::string& what, const Chart& chart, const std::string& caption,
               std::string n = {}) const;
  /// A policy's style, the same in every group.
  SeriesStyle style(const std::string& policy) const;
  /// "24 prompts, 96 texts, 12,288 tokens, 4,105 target passes".
  std::string n() const { return counted(rows); }
};

/// Accepted length and speed-up against tree size, distributions of accepted lengths, how many
/// accepted paths reach each depth, acceptance against draft probability (DySpec, figure 2), by
/// depth and rank, and by the chances that trees grew by, and accepted length against the number
/// that judges. Those without data have no picture.
std::vector<Figure> figures_of(const FigureGroup& group);

/// Rates of fewer cases are left out of figures.
inline constexpr std::int64_t least_counted = 20;

}  // namespace coppice::study
