#include <functional>
#include <utility>

#include "base/error.h"
#include "study/number_text.h"
#include "study/report/study_tables.h"

namespace coppice::study {
namespace {

std::string widths_text(const std::vector<std::int32_t>& widths) {
  std::string text;
  for (const std::int32_t width : widths) text += cat(text.empty() ? "" : " ", width);
  return text;
}

std::string if_set(bool set, const std::string& text) { return set ? text : std::string(); }

/// A column of summary.csv. An estimate's are followed by NAME_low and NAME_high.
struct CsvColumn {
  std::string name;
  std::function<std::string(const SummaryRow&)> of;
  Estimate SummaryRow::*estimate = nullptr;
};

std::vector<CsvColumn> csv_figures() {
  using Summed = const SummaryRow&;
  std::vector<CsvColumn> all = {
      {"policy", [](Summed s) { return s.cell.name(); }},
      {"tree_size", [](Summed s) { return s.cell.plain() ? "0" : s.cell.size_text(); }},
      {"tree_depth",
       [](Summed s) { return if_set(s.cell.tree_depth > 0, cat(s.cell.tree_depth)); }},
      {"beam_width",
       [](Summed s) { return if_set(s.cell.beam_width > 0, cat(s.cell.beam_width)); }},
      {"threshold",
       [](Summed s) { return if_set(s.cell.threshold > 0.0, number_text(s.cell.threshold)); }},
      {"widths", [](Summed s) { return widths_text(s.cell.widths); }},
      {"tree", [](Summed s) { return s.cell.tree.string(); }},
      {"temperature", [](Summed s) { return number_text(s.cell.temperature); }},
      {"draft_temperature",
       [](Summed s) {
         const double own = s.cell.draft_temperature;
         return if_set(own >= 0.0, number_text(own));
       }},
      {"acceptance", [](Summed s) -> std::string { return name_of(s.cell.acceptance); }},
      {"pair", [](Summed s) { return s.cell.pair; }},
      {"kind", [](Summed s) { return s.kind.empty() ? "all" : s.kind; }},
      {"prompts", [](Summed s) { return cat(s.prompts); }},
      {"texts", [](Summed s) { return cat(s.runs); }},
      {"tokens", [](Summed s) { return cat(s.tokens); }},
      {"steps", [](Summed s) { return cat(s.steps); }},
      {"accepted_length", {}, &SummaryRow::accepted_length},
      {"acceptance_rate", {}, &SummaryRow::acceptance_rate},
      {"accepted_share", {}, &SummaryRow::accepted_share},
      {"tokens_per_second", {}, &SummaryRow::tokens_per_second},
      {"speedup", {}, &SummaryRow::speedup},
      {"speedup_with_prefill", {}, &SummaryRow::speedup_with_prefill},
      {"mean_speedup", {}, &SummaryRow::mean_speedup},
      {"mean_speedup_with_prefill", {}, &SummaryRow::mean_speedup_with_prefill},
      {"rounds", [](Summed s) { return cat(s.rounds.size()); }},
      {"rounds_tokens_per_second", {}, &SummaryRow::rounds_tokens_per_second},
      {"rounds_speedup", {}, &SummaryRow::rounds_speedup},
      {"texts_of_other_runs", [](Summed s) { return cat(s.other_runs); }},
      {"draft_passes_per_step", [](Summed s) { return exact(s.draft_passes); }},
      {"tree_size_mean", [](Summed s) { return exact(s.tree_size); }},
      {"prefill_seconds", [](Summed s) { return exact(s.seconds.prefill); }}};
  for (const auto& [name, part] : Components::of_step()) {
    all.push_back({cat(name, "_us_per_step"),
                   [part](Summed s) { return exact(s.microseconds_per_step(s.seconds.*part)); }});
    all.push_back({cat(name, "_share"), [part](Summed s) {
                     const double all_parts = s.seconds.decode();
                     return exact(all_parts > 0.0 ? s.seconds.*part / all_parts : 0.0);
                   }});
  }
  return all;
}

void add_estimate(std::vector<std::string>& row, const Estimate& estimate) {
  row.insert(row.end(), {exact(estimate.value), exact(estimate.low), exact(estimate.high)});
}

}  // namespace

Table summary_csv(const Summary& summary) {
  const std::vector<CsvColumn> figures = csv_figures();
  Table table;
  for (const CsvColumn& figure : figures) {
    table.columns.push_back({figure.name});
    if (figure.estimate == nullptr) continue;
    for (const char* end : {"_low", "_high"}) table.columns.push_back({figure.name + end});
  }
  for (const auto* rows : {&summary.rows, &summary.kinds}) {
    for (const SummaryRow& s : *rows) {
      std::vector<std::string> row;
      for (const CsvColumn& figure : figures) {
        if (figure.estimate != nullptr) {
          add_estimate(row, s.*figure.estimate);
        } else {
          row.push_back(figure.of(s));
        }
      }
      table.rows.push_back(std::move(row));
    }
  }
  for (const OracleRow& o : summary.oracle) {
    std::vector<std::string> row = {
        "oracle", cat(o.size),    "", "", "", "", "", number_text(o.temperature), "", "", o.pair,
        "all",    cat(o.prompts), "", "", ""};
    add_estimate(row, o.accepted_length);
    table.rows.push_back(std::move(row));
  }
  return table;
}

}  // namespace coppice::study
