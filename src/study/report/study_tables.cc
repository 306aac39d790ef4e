#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

#include "base/error.h"
#include "study/figures/text.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

using Cells = std::vector<std::string>;

/// What stands before a setting's figures.
Cells cells_of_setting(const SummaryRow& s) {
  const Cell& cell = s.cell;
  return {s.kind,
          cell.plain() ? "plain" : cell.name(),
          cell.size_text(),
          number_text(cell.temperature),
          name_of(cell.acceptance),
          s.run};
}

/// A table whose rows begin with cells_of_setting(), of these further columns.
Table table_of_settings(const Cells& names) {
  Table table = {{{"kind", Align::left, true},
                  {"policy", Align::left, true},
                  {"tree", Align::right, true},
                  {"temperature", Align::right, true},
                  {"rule", Align::left, true},
                  {"run", Align::left, true}},
                 {}};
  add_columns(table, names);
  return table;
}

void add_row(Table& table, const SummaryRow& s, const Cells& figures) {
  Cells& row = table.rows.emplace_back(cells_of_setting(s));
  row.insert(row.end(), figures.begin(), figures.end());
}

/// A row for each setting for which `figures` gives any, under `names`.
template <typename Figures>
Table setting_table(const std::vector<SummaryRow>& rows, const Cells& names,
                    const Figures& figures) {
  Table table = table_of_settings(names);
  for (const SummaryRow& s : rows) {
    const Cells own = figures(s);
    if (!own.empty()) add_row(table, s, own);
  }
  return without_empty(std::move(table), {"kind", "run"});
}

std::string speed_text(const SummaryRow& s, const Estimate& estimate) {
  return with_interval(estimate, 2, s.other_runs > 0);
}

Estimate without_interval(const Estimate& estimate) {
  constexpr double none = std::numeric_limits<double>::quiet_NaN();
  return {estimate.value, none, none, estimate.n};
}

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
      {"tree_size", [](Summed s) { return s.cell.plain() ? "0" : s.cell.size_text(); }}};
  Cell::for_each_option([&](PolicyOption, const char* name, auto member) {
    all.push_back({name, [member](Summed s) { return option_text(s.cell.*member); }});
  });
  const std::vector<CsvColumn> others = {
      {"temperature", [](Summed s) { return number_text(s.cell.temperature); }},
      {"draft_temperature", [](Summed s) { return option_text(s.cell.draft_temperature); }},
      {"acceptance", [](Summed s) -> std::string { return name_of(s.cell.acceptance); }},
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
      {"specbench_tokens_per_second", {}, &SummaryRow::specbench_tokens_per_second},
      {"specbench_speedup", {}, &SummaryRow::specbench_speedup},
      {"rounds", [](Summed s) { return cat(s.rounds_speedup.n); }},
      {"rounds_tokens_per_second", {}, &SummaryRow::rounds_tokens_per_second},
      {"rounds_speedup", {}, &SummaryRow::rounds_speedup},
      {"texts_of_other_runs", [](Summed s) { return cat(s.other_runs); }},
      {"run", [](Summed s) { return s.run; }},
      {"draft_passes_per_step", [](Summed s) { return exact(s.draft_passes); }},
      {"tree_size_mean", [](Summed s) { return exact(s.tree_size); }},
      {"looked_up_per_step", [](Summed s) { return exact(s.looked_up); }},
      {"looked_up_accepted_per_step", [](Summed s) { return exact(s.looked_up_accepted()); }},
      {"prefill_seconds", [](Summed s) { return exact(s.seconds.prefill); }}};
  all.insert(all.end(), others.begin(), others.end());
  for (const auto& [name, part] : Components::of_step()) {
    all.push_back({cat(name, "_us_per_step"),
                   [part](Summed s) { return exact(s.microseconds_per_step(s.seconds.*part)); }});
  }
  all.push_back({"speedup_definition", [](Summed) { return std::string(speedup_definition); }});
  all.push_back(
      {"specbench_speedup_definition", [](Summed) { return std::string(specbench_definition); }});
  return all;
}

}  // namespace

Table summary_table(const std::vector<SummaryRow>& rows) {
  return setting_table(rows,
                       {"prompts", "accepted length [95%]", "acceptance rate [95%]", "tokens/s",
                        "speed-up [95%]", "Spec-Bench"},
                       [](const SummaryRow& s) -> Cells {
                         return {cat(s.prompts),
                                 with_interval(s.accepted_length, 2),
                                 s.cell.plain() ? "-" : with_interval(s.acceptance_rate, 3),
                                 fixed(s.tokens_per_second.value, 1),
                                 speed_text(s, s.speedup),
                                 speed_text(s, without_interval(s.specbench_speedup))};
                       });
}

Table step_table(const Summary& summary) {
  const bool look_up =
      std::ranges::any_of(summary.rows, [](const SummaryRow& row) { return row.cell.looks_up; });
  Cells names = {"tokens", "passes", "draft passes", "tree size"};
  if (look_up) names.push_back("looked up");
  for (const char* name :
       {"us", "draft %", "drawing %", "tree %", "target %", "judging %", "other %"}) {
    names.emplace_back(name);
  }
  return setting_table(summary.rows, names, [&](const SummaryRow& s) {
    const double all = s.seconds.decode();
    Cells row = {cat(s.tokens), cat(s.steps), fixed(s.draft_passes, 2), fixed(s.tree_size, 1)};
    if (look_up) {
      row.push_back(s.cell.looks_up
                        ? cat(fixed(s.looked_up_accepted(), 2), " of ", fixed(s.looked_up, 2))
                        : "-");
    }
    row.push_back(fixed(s.microseconds_per_step(all), 0));
    for (const auto& [name, part] : Components::of_step()) {
      row.push_back(percent(s.seconds.*part, all));
    }
    return row;
  });
}

Table comparison_table(const Summary& summary) {
  Table table = {{{"first", Align::left, true},
                  {"second", Align::left, true},
                  {"temperature", Align::right, true},
                  {"rule", Align::left, true}},
                 {}};
  add_columns(table, {"prompts", "accepted length, difference [95%]", "p", "p (Holm)",
                      "speed, ratio [95%]", "p of speed", "p of speed (Holm)"});
  for (const Comparison& one : summary.comparisons) {
    const SummaryRow &first = summary.rows[one.first], &second = summary.rows[one.second];
    const Tested &length = one.accepted_length, &speed = one.speed;
    table.rows.push_back({first.cell.label(), second.cell.label(),
                          number_text(first.cell.temperature), name_of(first.cell.acceptance),
                          cat(length.estimate.n), signed_interval(length.estimate, 2),
                          p_text(length.p), p_text(length.p_holm),
                          with_interval(speed.estimate, 2, compares_runs(first, second)),
                          p_text(speed.p), p_text(speed.p_holm)});
  }
  return table;
}

Table speedup_table(const Summary& summary) {
  const bool with_rounds = std::ranges::any_of(
      summary.rows, [](const SummaryRow& row) { return row.rounds_speedup.n > 1; });
  Cells names = {"prompts", "without prefill [95%]", "with prefill [95%]", "Spec-Bench [95%]"};
  if (with_rounds) {
    names.insert(names.end(),
                 {"rounds", "speed-up over rounds [95%]", "tokens/s over rounds [95%]"});
  }
  return setting_table(summary.rows, names, [&](const SummaryRow& s) {
    if (s.cell.plain() && !with_rounds) return Cells();
    Cells row = {cat(s.prompts), speed_text(s, s.speedup), speed_text(s, s.speedup_with_prefill),
                 speed_text(s, s.specbench_speedup)};
    if (with_rounds) {
      row.insert(row.end(), {cat(s.rounds_speedup.n), speed_text(s, s.rounds_speedup),
                             with_interval(s.rounds_tokens_per_second, 1)});
    }
    return row;
  });
}

Table depth_table(const Summary& summary, Estimate DepthRate::*rate) {
  constexpr std::size_t most_depths = 10;
  std::size_t deepest = 0;
  for (const SummaryRow& s : summary.rows) deepest = std::max(deepest, s.depths.size());
  Cells names = {"prompts", "passes"};
  for (std::size_t d = 1; d <= std::min(deepest, most_depths); ++d) names.push_back(cat("d = ", d));
  return setting_table(summary.rows, names, [&](const SummaryRow& s) {
    Cells row = s.depths.empty() ? Cells() : Cells{cat(s.prompts), cat(s.steps)};
    for (std::size_t d = 0; d < std::min(s.depths.size(), most_depths); ++d) {
      row.push_back(fixed((s.depths[d].*rate).value, 3));
    }
    return row;
  });
}

Table depths_csv(const Summary& summary) {
  Table table;
  add_columns(table, {"policy", "tree_size", "temperature", "acceptance", "prompts", "passes",
                      "depth", "reached_depth_before", "reached_depth"});
  for (const char* name : {"share_of_passes", "share_of_depth_before"}) {
    for (const char* end : {"", "_low", "_high"}) table.columns.push_back({cat(name, end)});
  }
  for (const SummaryRow& s : summary.rows) {
    for (std::size_t d = 0; d < s.depths.size(); ++d) {
      const DepthRate& rate = s.depths[d];
      Cells& row = table.rows.emplace_back(
          Cells{s.cell.name(), s.cell.size_text(), number_text(s.cell.temperature),
                name_of(s.cell.acceptance), cat(s.prompts), cat(s.steps), cat(d + 1),
                cat(rate.before), cat(rate.reached)});
      for (const Estimate& e : {rate.share, rate.given}) {
        for (const double value : {e.value, e.low, e.high}) row.push_back(exact(value));
      }
    }
  }
  return without_empty(std::move(table), {"kind", "run"});
}

Table agreement_table(const Summary& summary) {
  Table table = {{{"temperature"}, {"rule", Align::left}}, {}};
  add_columns(table, {"texts compared", "texts that depart"});
  for (const Agreement& one : summary.agreements) {
    table.rows.push_back({number_text(one.temperature),
                          one.temperature == 0.0 ? "any" : name_of(one.acceptance), cat(one.texts),
                          cat(one.divergences.size())});
  }
  return table;
}

Table divergence_table(const Summary& summary) {
  Table table;
  table.columns = {{"setting", Align::left}, {"prompt", Align::left}};
  add_columns(table, {"round", "turn", "token", "expected id", "found id"});
  const auto id = [](TokenId token) { return token < 0 ? std::string("end") : cat(token); };
  for (const Agreement& one : summary.agreements) {
    for (const Divergence& d : one.divergences) {
      table.rows.push_back({d.cell, d.prompt, cat(d.round + 1), cat(d.turn + 1),
                            cat(d.position + 1), id(d.expected), id(d.found)});
    }
  }
  return table;
}

std::vector<CaptionedTable> tables_of(const Summary& summary) {
  std::vector<CaptionedTable> tables = {
      {"results",
       "All prompts. Acceptance rate: accepted draft tokens of those that the judge came to. "
       "Speed-up: ratio of sums, prefill left out; Spec-Bench: the speed-up by its convention.",
       summary_table(summary.rows)},
      {"speedups",
       cat("Speed-up over plain decoding, without prefill and with it: ", speedup_definition,
           ". Spec-Bench: ", specbench_definition,
           ". Intervals over prompts; over rounds, how far times alone move."),
       speedup_table(summary)},
      {"verdict",
       "The leader: the fastest of the policies that grow trees. The baseline: the fastest of "
       "plain "
       "decoding and the chains. Paired bootstrap over prompts of tokens/s, prefill left out; p "
       "after Holm over every leader against all others of its temperature and rule. The leader "
       "was chosen on these prompts, and its interval is not corrected for that.",
       verdict_table(summary)},
      {"depths",
       "Acceptance by depth: of all target passes the share whose accepted path reaches depth d. "
       "depths.csv has all depths, with counts and intervals.",
       depth_table(summary, &DepthRate::share)},
      {"depths_given",
       "Conditional acceptance by depth: of the target passes whose accepted path reaches depth "
       "d - 1, the share that reaches d. A tree that ends at depth d - 1 counts as one that does "
       "not.",
       depth_table(summary, &DepthRate::given)},
      {"pairs",
       "Every two settings on the same prompts: accepted length of the first less that of the "
       "second, and speed of the first over that of the second, prefill left out (each against "
       "its own plain decoding, where that was run for each). Paired "
       "bootstrap over prompts; p after Holm over all pairs.",
       comparison_table(summary)},
      {"agreement",
       "Texts that must repeat plain decoding's, token for token: at temperature 0 all, under "
       "coupled acceptance those of the same seed.",
       agreement_table(summary)},
      {"divergences", "Where texts depart from those that they must repeat.",
       divergence_table(summary)},
      {"steps",
       "Means per step, and shares of the time after prefill. Tree: the policy's own work and the "
       "tree's order. Looked up: accepted of drafted, of the tokens that were looked up.",
       step_table(summary)},
      {"kinds", "Results by kind of prompt.", summary_table(summary.kinds)}};
  std::erase_if(tables, [](const CaptionedTable& one) { return one.table.rows.empty(); });
  for (CaptionedTable& one : tables) one.caption += cat(" n: ", counted(summary.rows), ".");
  return tables;
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
      Cells& row = table.rows.emplace_back();
      for (const CsvColumn& figure : figures) {
        if (figure.estimate == nullptr) {
          row.push_back(figure.of(s));
          continue;
        }
        const Estimate& e = s.*figure.estimate;
        for (const double value : {e.value, e.low, e.high}) row.push_back(exact(value));
      }
    }
  }
  return table;
}

}  // namespace coppice::study
