// The results that a row of a study's tables sums up, each with the plain decoding that its speed
// is compared with.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "study/grid/results.h"
#include "study/statistics.h"

namespace coppice::study {

/// The results of all cells that share a row.
struct Row {
  const Cell* cell = nullptr;
  std::vector<const Result*> results;  ///< in order (in_order())
  /// Plain decoding of the same prompt and round with the same seed: that of the same run if it
  /// wrote it, else of the oldest run that did; null if none did.
  std::vector<const Result*> plains;  ///< [results]

  /// Whether some text stands there several times, of as many runs, as plain decoding does in a
  /// merged study.
  bool has_text_twice() const;
};

/// Returns all rows of a study by Cell::row_key(), with all results, whatever prompts are complete.
/// They point into `results`.
std::map<std::string, Row> rows_by_key(const Results& results);

/// Splits a row by the runs that wrote it, oldest first.
std::vector<Row> by_run(const Row& row);

/// Sums over the seeds and rounds of a row, by prompt.
struct RowColumns : PromptColumns {
  Values examined, accepted, drafted, tokens, seconds;
  Values paces, texts;  ///< sum of the texts' tokens/s, prefill included, and their number
  Values plain_tokens, plain_with_prefill, plain_paces;  ///< as tokens, seconds and paces
};

/// Sums a row up on those prompts. A prompt on which it has no results has zeros.
RowColumns columns_of(const Row& row, std::span<const std::string> prompts);

}  // namespace coppice::study
