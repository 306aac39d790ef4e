// A study from its request to its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "study/grid/settings.h"
#include "study/grid/study_file.h"
#include "study/report/summary.h"

namespace coppice::study {

struct StudyOutcome {
  bool finished = false;  ///< else `summary` is empty and no tables are written
  bool continued = false;
  Summary summary;
  StudyFile file;
  std::string device, dtype;  ///< of all results: "cpu", "bf16"
  /// Generations, and those that ended because the KV memory or the context was full.
  std::int64_t texts = 0, cut_short = 0;
  /// Results in the folder that the study does not ask for, and those that it asks for and lacks
  /// (of a merged one).
  std::int64_t others = 0, missing = 0;
  std::int32_t prompts = 0;  ///< complete, which tables are made of
};

/// Runs what the folder `out` lacks of the study (runner.h), pair after pair of models, then writes
///   study.json      what was studied (study_file.h)
///   prompts.jsonl   the prompts, with the ids by which results name them
///   results.jsonl   a line per prompt, cell and round, and per prompt, temperature and size for
///                   the oracle
///   costs.json      measured costs, where a size is automatic and no other file is named for them;
///                   costs-PAIR.json where pairs have names
///   acceptance.json acceptance by rank, if sequoia's trees are planned and no file is named for
///                   it; acceptance-PAIR.json if pairs have names
///   summary.csv, report.html, figures/*.svg
/// and, where a trace is asked for, that file. A later request for the same folder may ask for
/// other cells, prompts, rounds and pairs: what is there already is used, the rest is run, and
/// results that it does not ask for stay. Throws Error(usage) for a request that contradicts the
/// folder, the models or the device, and Error(failure) for a full disk and the like; results on
/// the disk stay, and the next run goes on.
StudyOutcome conduct(const StudyRequest& request, const std::filesystem::path& out,
                     const StudyHooks& hooks);

/// Sums up what is there and writes the tables, the report and its figures into `folder`.
StudyOutcome publish(const std::filesystem::path& folder, const StudyFile& file,
                     const Results& results);

}  // namespace coppice::study
