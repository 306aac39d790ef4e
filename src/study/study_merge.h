// Several studies in one folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <vector>

#include "study/study.h"

namespace coppice::study {

struct MergeOutcome {
  StudyOutcome study;
  std::int64_t twice = 0;  ///< results that several studies hold; the first's were taken
};

/// Writes a study of all settings, prompts and results of `studies` into a new or empty folder, and
/// its tables. Throws Error(usage) for fewer than two, for studies whose results may not meet in
/// one folder, by name, and for a folder that holds something; Error(failure) if it cannot be
/// written.
MergeOutcome merge_studies(const std::vector<std::filesystem::path>& studies,
                           const std::filesystem::path& out);

}  // namespace coppice::study
