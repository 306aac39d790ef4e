// A study as a web page and figures.
#pragma once

#include <filesystem>

#include "study/provenance.h"
#include "study/results.h"
#include "study/summary.h"

namespace coppice::study {

/// Writes report.html, one page that needs nothing else, and its figures as figures/*.svg into
/// `folder`. `facts`: how it was made (study_file.h). Throws Error(failure) where they cannot be
/// written.
void write_report(const std::filesystem::path& folder, const Facts& facts, const Summary& summary,
                  const Results& results);

}  // namespace coppice::study
