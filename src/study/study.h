// A study from its request to its files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "study/grid/agreement.h"
#include "study/grid/grid.h"
#include "study/grid/study_file.h"
#include "study/report/summary.h"
#include "study/statistics.h"

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

/// Runs what the folder `out` lacks of the study (runner.h), then writes
///   study.json      what was studied (study_file.h)
///   prompts.jsonl   the prompts, with the ids by which results name them
///   results.jsonl   a line per prompt, cell and round
///   costs.json      measured costs, where a size is automatic and no other file is named for them
///   acceptance.json acceptance by rank, if sequoia's trees are planned and no file is named for it
///   summary.csv, depths.csv, report.html, figures/*.svg, tables/*
/// and, where a trace is asked for, that file. A later request for the same folder may ask for
/// other cells, prompts and rounds: what is there already is used, the rest is run, and results
/// that it does not ask for stay. Throws Error(usage) for a request that contradicts the folder,
/// the models or the device, and Error(failure) for a full disk and the like; results on the disk
/// stay, and the next run goes on.
StudyOutcome conduct(const StudyRequest& request, const std::filesystem::path& out,
                     const StudyHooks& hooks);

// Two studies side by side.

/// A setting that both studies have, on the prompts that both have, each with its own seeds and
/// rounds. The machine may have been another, or busier, in one of them: what is compared are
/// speed-ups, each over the same study's plain decoding.
struct ComparedRow {
  Cell cell;  ///< its seed means nothing
  Estimate first_length, second_length;
  Estimate first_speed, second_speed;  ///< tokens per second, prefill left out
  Estimate first_speedup, second_speedup;
  /// The first study's against the second's; nothing for plain decoding, whose accepted length and
  /// speed-up are 1 in both.
  Comparison comparison;
};

struct StudyComparison {
  std::int32_t prompts = 0;
  std::vector<ComparedRow> rows;         ///< in the first study's order
  PlainPace first_pace, second_pace;     ///< how evenly plain decoding ran in each
  std::vector<std::string> differences;  ///< what else they differ in: "device: "cpu"; "cuda""
  std::vector<std::string> only_first, only_second;  ///< Cell::row_key() of what the other lacks
  /// Texts of both that must agree (agreement.h), compared where the target and what bounds and
  /// filters its texts are the same; else none.
  std::int64_t texts = 0;
  std::vector<Divergence> divergences;
};

/// Pairs what two studies have in common, by setting and prompt, of the prompts that are complete
/// in both. One family for Holm: all rows but plain decoding's. Throws Error(usage) if they have no
/// prompt or no setting in common.
StudyComparison compare_studies(const StoredStudy& first, const StoredStudy& second);

// Several studies in one folder.

struct MergeOutcome {
  StudyOutcome study;
  std::int64_t twice = 0;  ///< results that several studies hold; the first's were taken
};

/// Writes a study of all settings, prompts and results of `studies`, and its tables, into a folder
/// that is new or empty; until all is there it is called `out`.part. Throws Error(usage) for fewer
/// than two, for studies whose results may not meet in one folder, by name, and for a folder that
/// holds something; Error(failure) if it cannot be written.
MergeOutcome merge_studies(const std::vector<std::filesystem::path>& studies,
                           const std::filesystem::path& out);

/// Sums up what is there and writes the tables, the report and its figures into `folder`.
StudyOutcome publish(const std::filesystem::path& folder, const StudyFile& file,
                     const Results& results);

}  // namespace coppice::study
