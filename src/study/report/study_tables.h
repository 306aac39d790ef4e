// A study's tables, for its page and as files of their own.
#pragma once

#include <string>
#include <vector>

#include "study/figures/table.h"
#include "study/report/summary.h"

namespace coppice::study {

struct NamedTable {
  std::string name;  ///< of its files, without extension; unique in a report
  std::string caption;
  Table table;
};

/// What a setting brings, the oracle's rows last.
Table summary_table(const Summary& summary);
/// And what a step of it takes: means per step, and the shares of the time after prefill.
Table step_table(const Summary& summary);
/// Every figure unrounded, for programs; the oracle's rows with policy "oracle".
Table summary_csv(const Summary& summary);
/// Every two settings against each other: differences of accepted length, ratios of speed, and p
/// after Holm.
Table comparison_table(const Summary& summary);
/// Speed-up by both conventions, the ratio of sums and the mean of prompts' ratios, with and
/// without prefill; and over rounds, where there are several.
Table speedup_table(const Summary& summary);
/// Shares of steps by accepted length.
Table length_table(const Summary& summary);
/// Acceptance by depth, a row for each depth.
Table depth_table(const Summary& summary);
/// Texts that must repeat plain decoding's: how many do.
Table agreement_table(const Summary& summary);
/// Where they do not.
Table divergence_table(const Summary& summary);

/// All that have rows, the results first.
std::vector<NamedTable> tables_of(const Summary& summary);

}  // namespace coppice::study
