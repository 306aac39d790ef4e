// From results to the rows of a study's tables.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "study/cell.h"
#include "study/figures/table.h"
#include "study/results.h"
#include "study/statistics.h"

namespace coppice::study {

/// One cell, all of its seeds together, over all prompts or those of one kind. Everything is a
/// ratio of sums over prompts.
struct SummaryRow {
  Cell cell;         ///< its seed means nothing
  std::string kind;  ///< empty: all prompts
  std::int32_t prompts = 0;
  /// As `coppice generate` prints it: tokens judged good per target pass after prefill, the bonus
  /// token included.
  Estimate accepted_length;
  Estimate acceptance_rate;    ///< accepted draft tokens of those that the judge examined
  Estimate accepted_share;     ///< accepted draft tokens of all drafted
  Estimate tokens_per_second;  ///< new tokens by decode time; prefill and its token are left out
  /// tokens_per_second over plain decoding's in the same prompts, under the same temperature and
  /// acceptance.
  Estimate speedup;
  double draft_passes = 0.0;  ///< per step, the draft's prefill included
  double tree_size = 0.0;     ///< per step
  Components seconds;
  std::int64_t tokens = 0, steps = 0;
  NodeCounts nodes;

  double microseconds_per_step(double seconds_of_part) const;
};

/// The oracle's expected accepted length by tree size, at one temperature.
struct OracleRow {
  double temperature = 0.0;
  std::int32_t size = 0;
  std::int32_t prompts = 0;
  Estimate accepted_length;
};

struct Summary {
  std::vector<SummaryRow> rows;   ///< over all prompts, in the grid's order
  std::vector<SummaryRow> kinds;  ///< kind by kind, where prompts have several
  std::vector<OracleRow> oracle;
};

/// Only prompts that all cells have been run on are counted. Does not depend on the results' order.
Summary summarise(std::span<const Cell> cells, const Results& results);

/// For people, figures rounded: what a setting brings.
Table summary_table(const Summary& summary);
/// And what a step of it takes: means per step, and the shares of the time after prefill.
Table step_table(const Summary& summary);
/// Every figure, the oracle's rows with policy "oracle".
Table summary_csv(const Summary& summary);

}  // namespace coppice::study
