// A study from its request to its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>

#include "study/settings.h"
#include "study/summary.h"

namespace coppice::study {

struct StudyHooks {
  std::function<void(const std::string& what, double fraction)> progress;
  std::function<bool()> stop;  ///< true ends the study early; what was done is kept
};

struct StudyOutcome {
  bool finished = false;  ///< else `summary` is empty and no tables are written
  bool continued = false;
  Summary summary;
  std::string device, dtype;
  /// Generations, and those that ended because the KV memory or the context was full.
  std::int64_t texts = 0, cut_short = 0;
};

/// Runs what the folder `out` lacks of the study (runner.h), then writes there
///   study.json      what was studied; started again, it must be the same
///   results.jsonl   a line per prompt and cell, and per prompt and temperature for the oracle
///   costs.json      measured costs, where a size is automatic and no other file is named for them
///   summary.csv, report.html, figures/*.svg
/// and, where a trace is asked for, that file; its header lists the cells that runs are numbered
/// by. Throws Error(usage) for a request that contradicts the folder, the models or the device, and
/// Error(failure) for a full disk and the like; results on the disk stay, and the next run goes on.
StudyOutcome conduct(const StudyRequest& request, const std::filesystem::path& out,
                     const StudyHooks& hooks);

}  // namespace coppice::study
