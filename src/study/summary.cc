#include "study/summary.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <map>
#include <set>

namespace coppice::study {
namespace {

/// Sums over the seeds of a row, of one prompt.
struct PromptSums {
  double steps = 0, judged_good = 0, examined = 0, accepted = 0, drafted = 0, tokens = 0,
         decode_seconds = 0;

  void add(const Record& record) {
    steps += static_cast<double>(record.steps);
    judged_good += static_cast<double>(record.judged_good);
    examined += static_cast<double>(record.nodes.total().examined);
    accepted += static_cast<double>(record.accepted_drafts());
    drafted += static_cast<double>(record.drafted);
    tokens += static_cast<double>(record.decoded());
    decode_seconds += record.seconds.decode();
  }
};

using ByPrompt = std::map<std::int32_t, PromptSums>;

/// The results of all cells that share a row.
struct Row {
  const Cell* cell = nullptr;
  std::vector<const Record*> records;  ///< in order of prompt, then of cell name
  ByPrompt prompts;
};

/// Columns of `row` over `prompts`, for bootstrap().
std::vector<std::vector<double>> columns_of(const ByPrompt& row,
                                            const std::vector<std::int32_t>& prompts,
                                            std::initializer_list<double PromptSums::*> which) {
  std::vector<std::vector<double>> columns;
  for (const auto member : which) {
    columns.emplace_back();
    for (const std::int32_t prompt : prompts) columns.back().push_back(row.at(prompt).*member);
  }
  return columns;
}

Estimate ratio(const ByPrompt& row, const std::vector<std::int32_t>& prompts,
               double PromptSums::*above, double PromptSums::*below) {
  return bootstrap(columns_of(row, prompts, {above, below}),
                   [](std::span<const double> sums) { return sums[0] / sums[1]; });
}

Estimate speedup(const ByPrompt& row, const ByPrompt& plain,
                 const std::vector<std::int32_t>& prompts) {
  const auto pace = {&PromptSums::tokens, &PromptSums::decode_seconds};
  auto columns = columns_of(row, prompts, pace);
  for (auto& column : columns_of(plain, prompts, pace)) columns.push_back(std::move(column));
  return bootstrap(columns, [](std::span<const double> sums) {
    return (sums[0] / sums[1]) / (sums[2] / sums[3]);
  });
}

SummaryRow summary_of(const Row& row, const Row& plain, const std::vector<std::int32_t>& prompts,
                      const std::string& kind) {
  SummaryRow s;
  s.cell = *row.cell;
  s.kind = kind;
  s.prompts = static_cast<std::int32_t>(prompts.size());
  s.accepted_length = ratio(row.prompts, prompts, &PromptSums::judged_good, &PromptSums::steps);
  s.acceptance_rate = ratio(row.prompts, prompts, &PromptSums::accepted, &PromptSums::examined);
  s.accepted_share = ratio(row.prompts, prompts, &PromptSums::accepted, &PromptSums::drafted);
  s.tokens_per_second =
      ratio(row.prompts, prompts, &PromptSums::tokens, &PromptSums::decode_seconds);
  s.speedup = speedup(row.prompts, plain.prompts, prompts);
  std::int64_t passes = 0, drafted = 0;
  for (const Record* record : row.records) {
    if (!std::binary_search(prompts.begin(), prompts.end(), record->prompt)) continue;
    s.seconds += record->seconds;
    s.tokens += record->tokens;
    s.steps += record->steps;
    s.nodes += record->nodes;
    passes += record->draft_passes;
    drafted += record->drafted;
  }
  const auto steps = static_cast<double>(std::max<std::int64_t>(s.steps, 1));
  s.draft_passes = static_cast<double>(passes) / steps;
  s.tree_size = static_cast<double>(drafted) / steps;
  return s;
}

std::vector<OracleRow> oracle_rows(const Results& results) {
  struct Sums {
    std::map<std::int32_t, std::pair<double, double>> by_prompt;  // expected length, positions
  };
  std::map<std::pair<double, std::int32_t>, Sums> groups;
  for (const OracleRecord& record : results.oracle()) {
    for (const OracleWalk& walk : record.walks) {
      groups[{record.temperature, walk.size}].by_prompt[record.prompt] = {
          walk.expected, static_cast<double>(walk.positions)};
    }
  }
  std::vector<OracleRow> rows;
  for (const auto& [of, sums] : groups) {
    std::vector<std::vector<double>> columns(2);
    for (const auto& [prompt, pair] : sums.by_prompt) {
      columns[0].push_back(pair.first);
      columns[1].push_back(pair.second);
    }
    rows.push_back({of.first, of.second, static_cast<std::int32_t>(columns[0].size()),
                    bootstrap(columns, [](std::span<const double> s) { return s[0] / s[1]; })});
  }
  return rows;
}

}  // namespace

double SummaryRow::microseconds_per_step(double seconds_of_part) const {
  return steps > 0 ? 1e6 * seconds_of_part / static_cast<double>(steps) : 0.0;
}

Summary summarise(std::span<const Cell> cells, const Results& results) {
  std::vector<std::string> order;
  std::map<std::string, Row> rows;
  std::map<std::string, const Cell*> cell_of;
  for (const Cell& cell : cells) {
    cell_of[cell.key()] = &cell;
    Row& row = rows[cell.row_key()];
    if (row.cell == nullptr) {
      order.push_back(cell.row_key());
      row.cell = &cell;
    }
  }
  // Sums of floating-point numbers depend on their order, the file's order on who was faster.
  std::vector<const Record*> records;
  std::map<std::int32_t, std::size_t> runs;  // by prompt
  for (const Record& record : results.records()) {
    records.push_back(&record);
    ++runs[record.prompt];
  }
  std::sort(records.begin(), records.end(), [](const Record* a, const Record* b) {
    return a->prompt != b->prompt ? a->prompt < b->prompt : a->cell < b->cell;
  });
  std::vector<std::int32_t> complete;
  std::map<std::string, std::vector<std::int32_t>> of_kind;
  for (const Record* record : records) {
    if (runs[record->prompt] != cells.size()) continue;
    Row& row = rows.at(cell_of.at(record->cell)->row_key());
    row.records.push_back(record);
    row.prompts[record->prompt].add(*record);
    if (complete.empty() || complete.back() != record->prompt) {
      complete.push_back(record->prompt);
      of_kind[record->kind].push_back(record->prompt);
    }
  }

  Summary summary;
  for (const std::string& key : order) {
    const Row& row = rows.at(key);
    const Row& plain = rows.at(row.cell->plain_row_key());
    summary.rows.push_back(summary_of(row, plain, complete, ""));
    if (of_kind.size() < 2) continue;
    for (const auto& [kind, prompts] : of_kind) {
      summary.kinds.push_back(summary_of(row, plain, prompts, kind));
    }
  }
  summary.oracle = oracle_rows(results);
  return summary;
}

}  // namespace coppice::study
