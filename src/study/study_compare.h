// Two studies side by side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "study/grid/agreement.h"
#include "study/grid/study_folder.h"
#include "study/statistics.h"

namespace coppice::study {

/// A setting that both studies have, on the prompts that both have, each with its own seeds and
/// rounds.
struct ComparedRow {
  Cell cell;  ///< its seed means nothing
  Estimate first_length, second_length;
  Estimate first_speed, second_speed;  ///< tokens per second, prefill left out
  Comparison comparison;               ///< the first study's against the second's
};

struct StudyComparison {
  std::int32_t prompts = 0;
  std::vector<ComparedRow> rows;         ///< in the first study's order
  std::vector<std::string> differences;  ///< what else they differ in: "device: "cpu"; "cuda""
  std::vector<std::string> only_first, only_second;  ///< Cell::row_key() of what the other lacks
  /// Texts of both that must agree (agreement.h), compared where the target and what bounds and
  /// filters its texts are the same; else none.
  std::int64_t texts = 0;
  std::vector<Divergence> divergences;
};

/// Pairs what two studies have in common, by setting and prompt, of the prompts that are complete
/// in both. One family for Holm: all rows. Throws Error(usage) if they have no prompt or no setting
/// in common.
StudyComparison compare_studies(const StoredStudy& first, const StoredStudy& second);

}  // namespace coppice::study
