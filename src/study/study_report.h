// A study as a web page and figures.
#pragma once

#include <filesystem>
#include <string>

#include "study/results.h"
#include "study/settings.h"
#include "study/summary.h"

namespace coppice::study {

/// Writes report.html, one page that needs nothing else, and its figures as figures/*.svg into
/// `folder`. Throws Error(failure) where they cannot be written.
void write_report(const std::filesystem::path& folder, const StudyRequest& request,
                  const std::string& device, const std::string& dtype, const Summary& summary,
                  const Results& results);

}  // namespace coppice::study
