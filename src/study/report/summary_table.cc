#include <functional>
#include <utility>

#include "base/error.h"
#include "study/report/setting_columns.h"
#include "study/report/summary.h"
#include "study/report/table_text.h"

namespace coppice::study {
namespace {

/// Of a step's time, in order.
constexpr std::pair<const char*, double Components::*> step_parts[] = {
    {"draft", &Components::draft},
    {"drawing", &Components::drawing},
    {"construction", &Components::construction},
    {"verify", &Components::verify},
    {"judging", &Components::judging},
    {"other", &Components::other}};

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
  using Row = const SummaryRow&;
  std::vector<CsvColumn> all = {
      {"policy", [](Row s) { return s.cell.name(); }},
      {"tree_size", [](Row s) { return s.cell.plain() ? "0" : s.cell.size_text(); }},
      {"tree_depth", [](Row s) { return if_set(s.cell.tree_depth > 0, cat(s.cell.tree_depth)); }},
      {"beam_width", [](Row s) { return if_set(s.cell.beam_width > 0, cat(s.cell.beam_width)); }},
      {"threshold",
       [](Row s) { return if_set(s.cell.threshold > 0.0, number_text(s.cell.threshold)); }},
      {"widths", [](Row s) { return widths_text(s.cell.widths); }},
      {"tree", [](Row s) { return s.cell.tree.string(); }},
      {"temperature", [](Row s) { return number_text(s.cell.temperature); }},
      {"draft_temperature",
       [](Row s) {
         const double own = s.cell.draft_temperature;
         return if_set(own >= 0.0, number_text(own));
       }},
      {"acceptance", [](Row s) -> std::string { return name_of(s.cell.acceptance); }},
      {"pair", [](Row s) { return s.cell.pair; }},
      {"kind", [](Row s) { return s.kind.empty() ? "all" : s.kind; }},
      {"prompts", [](Row s) { return cat(s.prompts); }},
      {"texts", [](Row s) { return cat(s.runs); }},
      {"tokens", [](Row s) { return cat(s.tokens); }},
      {"steps", [](Row s) { return cat(s.steps); }},
      {"accepted_length", {}, &SummaryRow::accepted_length},
      {"acceptance_rate", {}, &SummaryRow::acceptance_rate},
      {"accepted_share", {}, &SummaryRow::accepted_share},
      {"tokens_per_second", {}, &SummaryRow::tokens_per_second},
      {"speedup", {}, &SummaryRow::speedup},
      {"speedup_with_prefill", {}, &SummaryRow::speedup_with_prefill},
      {"mean_speedup", {}, &SummaryRow::mean_speedup},
      {"mean_speedup_with_prefill", {}, &SummaryRow::mean_speedup_with_prefill},
      {"rounds", [](Row s) { return cat(s.rounds.size()); }},
      {"rounds_tokens_per_second", {}, &SummaryRow::rounds_tokens_per_second},
      {"rounds_speedup", {}, &SummaryRow::rounds_speedup},
      {"texts_of_other_runs", [](Row s) { return cat(s.other_runs); }},
      {"draft_passes_per_step", [](Row s) { return exact(s.draft_passes); }},
      {"tree_size_mean", [](Row s) { return exact(s.tree_size); }},
      {"prefill_seconds", [](Row s) { return exact(s.seconds.prefill); }}};
  for (const auto& [name, part] : step_parts) {
    all.push_back({cat(name, "_us_per_step"),
                   [part](Row s) { return exact(s.microseconds_per_step(s.seconds.*part)); }});
    all.push_back({cat(name, "_share"), [part](Row s) {
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

Table summary_table(const Summary& summary) {
  Table table = setting_table(
      summary,
      {"prompts", "accepted length [95%]", "acceptance rate [95%]", "tokens/s", "speed-up [95%]"},
      [](const SummaryRow& s) -> std::vector<std::string> {
        return {cat(s.prompts), with_interval(s.accepted_length, 2),
                s.cell.plain() ? "-" : with_interval(s.acceptance_rate, 3),
                fixed(s.tokens_per_second.value, 1), with_interval(s.speedup, 2, s.other_runs > 0)};
      });
  const SettingColumns settings(summary);
  for (const OracleRow& o : summary.oracle) {
    std::vector<std::string> row = settings.of_oracle(o);
    row.insert(row.end(), {cat(o.prompts), with_interval(o.accepted_length, 2)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table step_table(const Summary& summary) {
  return setting_table(summary,
                       {"draft passes", "tree size", "us", "draft %", "drawing %", "tree %",
                        "target %", "judging %", "other %"},
                       [](const SummaryRow& s) {
                         const double all = s.seconds.decode();
                         std::vector<std::string> row = {fixed(s.draft_passes, 2),
                                                         fixed(s.tree_size, 1),
                                                         fixed(s.microseconds_per_step(all), 0)};
                         for (const auto& [name, part] : step_parts) {
                           row.push_back(percent(s.seconds.*part, all));
                         }
                         return row;
                       });
}

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
