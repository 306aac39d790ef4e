// A study as a web page, figures and tables.
#pragma once

#include <filesystem>
#include <string>

#include "study/grid/results.h"
#include "study/grid/study_file.h"
#include "study/report/summary.h"

namespace coppice::study {

/// Whether texts agree where they must (agreement.h), in a sentence; empty if none must.
std::string agreement_sentence(const Summary& summary);

/// What the stars at speeds mean (SummaryRow::other_runs), in a sentence; empty if there are none.
std::string other_runs_sentence(const Summary& summary);

/// Writes into `folder`: report.html, one page that needs nothing else; its figures as
/// figures/*.svg; its tables as tables/*.csv, *.md and *.tex. `facts`: how it was made
/// (study_file.h). Throws Error(failure) if they cannot be written.
void write_report(const std::filesystem::path& folder, const Facts& facts, const Summary& summary,
                  const Results& results);

}  // namespace coppice::study
