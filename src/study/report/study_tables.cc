#include <algorithm>
#include <functional>
#include <iterator>
#include <utility>

#include "base/error.h"
#include "study/number_text.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

using Cells = std::vector<std::string>;

void append(Cells& row, Cells more) {
  std::move(more.begin(), more.end(), std::back_inserter(row));
}

/// What names a table's rows, before `names`.
Table setting_columns(const Cells& names) {
  Table table = {{{"kind", Align::left},
                  {"pair", Align::left},
                  {"policy", Align::left},
                  {"tree"},
                  {"temperature"},
                  {"rule", Align::left}},
                 {}};
  add_columns(table, names);
  return table;
}

Cells setting_cells(const SummaryRow& row) {
  const Cell& cell = row.cell;
  return {row.kind,
          cell.pair,
          cell.plain() ? "plain" : cell.name(),
          cell.size_text(),
          number_text(cell.temperature),
          name_of(cell.acceptance)};
}

/// A row for each setting for which `figures` gives any, under `names`.
template <typename Figures>
Table setting_table(const Summary& summary, const Cells& names, const Figures& figures) {
  Table table = setting_columns(names);
  for (const SummaryRow& s : summary.rows) {
    Cells own = figures(s);
    if (own.empty()) continue;
    table.rows.push_back(setting_cells(s));
    append(table.rows.back(), std::move(own));
  }
  return table;
}

/// Kind and pair are for studies that have several.
Table settled(Table table) { return without_empty(std::move(table), {"kind", "pair"}); }

Table kinds_table(const Summary& summary) {
  Summary kinds;
  kinds.rows = summary.kinds;
  return summary_table(kinds);
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
      {"tree_size", [](Summed s) { return s.cell.plain() ? "0" : s.cell.size_text(); }},
      {"temperature", [](Summed s) { return number_text(s.cell.temperature); }},
      {"draft_temperature", [](Summed s) { return option_text(s.cell.draft_temperature); }},
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
  // Behind the tree's size.
  auto place = all.begin() + 2;
  Cell::for_each_option([&](PolicyOption, const char* name, auto member) {
    place =
        1 + all.insert(place, {name, [member](Summed s) { return option_text(s.cell.*member); }});
  });
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

Table summary_table(const Summary& summary) {
  Table table = setting_table(
      summary,
      {"prompts", "accepted length [95%]", "acceptance rate [95%]", "tokens/s", "speed-up [95%]"},
      [](const SummaryRow& s) -> Cells {
        return {cat(s.prompts), with_interval(s.accepted_length, 2),
                s.cell.plain() ? "-" : with_interval(s.acceptance_rate, 3),
                fixed(s.tokens_per_second.value, 1), with_interval(s.speedup, 2, s.other_runs > 0)};
      });
  for (const OracleRow& o : summary.oracle) {
    table.rows.push_back({"", o.pair, "oracle", cat(o.size), number_text(o.temperature), "",
                          cat(o.prompts), with_interval(o.accepted_length, 2), "", "", ""});
  }
  return settled(std::move(table));
}

Table step_table(const Summary& summary) {
  return settled(setting_table(summary,
                               {"draft passes", "tree size", "us", "draft %", "drawing %", "tree %",
                                "target %", "judging %", "other %"},
                               [](const SummaryRow& s) {
                                 const double all = s.seconds.decode();
                                 Cells row = {fixed(s.draft_passes, 2), fixed(s.tree_size, 1),
                                              fixed(s.microseconds_per_step(all), 0)};
                                 for (const auto& [name, part] : Components::of_step()) {
                                   row.push_back(percent(s.seconds.*part, all));
                                 }
                                 return row;
                               }));
}

Table comparison_table(const Summary& summary) {
  Table table = {{{"pair", Align::left},
                  {"first", Align::left},
                  {"second", Align::left},
                  {"temperature"},
                  {"rule", Align::left}},
                 {}};
  add_columns(table, {"prompts", "accepted length, difference [95%]", "p", "p (Holm)",
                      "speed, ratio [95%]", "p of speed", "p of speed (Holm)"});
  for (const Comparison& one : summary.comparisons) {
    const Cell& first = summary.rows[one.first].cell;
    const Cell& second = summary.rows[one.second].cell;
    const bool two_runs = summary.rows[one.first].other_runs != summary.rows[one.second].other_runs;
    table.rows.push_back({first.pair, first.label(), second.label(), number_text(first.temperature),
                          name_of(first.acceptance), cat(one.accepted_length.estimate.n),
                          signed_interval(one.accepted_length.estimate, 2),
                          p_text(one.accepted_length.p), p_text(one.accepted_length.p_holm),
                          with_interval(one.speed.estimate, 2, two_runs), p_text(one.speed.p),
                          p_text(one.speed.p_holm)});
  }
  return settled(std::move(table));
}

Table speedup_table(const Summary& summary) {
  const bool with_rounds = std::ranges::any_of(
      summary.rows, [](const SummaryRow& row) { return row.rounds.size() > 1; });
  Cells names = {"prompts", "ratio of sums [95%]", "with prefill [95%]",
                 "mean of prompts' ratios [95%]", "mean, with prefill [95%]"};
  if (with_rounds) {
    append(names, {"rounds", "speed-up over rounds [95%]", "tokens/s over rounds [95%]"});
  }
  return settled(setting_table(summary, names, [&](const SummaryRow& s) {
    if (s.cell.plain() && !with_rounds) return Cells();
    const auto speed = [&](const Estimate& e) { return with_interval(e, 2, s.other_runs > 0); };
    Cells row = {cat(s.prompts), speed(s.speedup), speed(s.speedup_with_prefill),
                 speed(s.mean_speedup), speed(s.mean_speedup_with_prefill)};
    if (with_rounds) {
      append(row, {cat(s.rounds.size()), speed(s.rounds_speedup),
                   with_interval(s.rounds_tokens_per_second, 1)});
    }
    return row;
  }));
}

Table length_table(const Summary& summary) {
  constexpr std::size_t most_columns = 16;
  std::size_t longest = 0;
  for (const SummaryRow& s : summary.rows) longest = std::max(longest, s.lengths.size());
  const std::size_t columns = std::min(longest > 0 ? longest - 1 : 0, most_columns);
  Cells names = {"steps"};
  for (std::size_t c = 1; c <= columns; ++c) {
    names.push_back(cat(c, c == columns && longest - 1 > columns ? "+ %" : " %"));
  }
  return settled(setting_table(summary, names, [&](const SummaryRow& s) {
    if (s.cell.plain()) return Cells();
    Cells row = {cat(s.steps)};
    for (const double count : s.steps_by_length(columns)) {
      row.push_back(percent(count, static_cast<double>(s.steps)));
    }
    return row;
  }));
}

Table depth_table(const Summary& summary) {
  Table table =
      setting_columns({"depth", "steps that came to it", "accepted", "prompts", "rate [95%]"});
  for (const SummaryRow& s : summary.rows) {
    if (s.cell.plain()) continue;
    for (const DepthRate& depth : s.depths) {
      table.rows.push_back(setting_cells(s));
      append(table.rows.back(), {cat(depth.depth), cat(depth.reached), cat(depth.accepted),
                                 cat(depth.rate.n), with_interval(depth.rate, 3)});
    }
  }
  return settled(std::move(table));
}

Table agreement_table(const Summary& summary) {
  Table table = {{{"pair", Align::left}, {"temperature"}, {"rule", Align::left}}, {}};
  add_columns(table, {"texts compared", "texts that depart"});
  for (const Agreement& one : summary.agreements) {
    table.rows.push_back({one.pair, number_text(one.temperature),
                          one.temperature == 0.0 ? "any" : name_of(one.acceptance), cat(one.texts),
                          cat(one.divergences.size())});
  }
  return settled(std::move(table));
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
       "Speed-up: ratio of sums, prefill left out.",
       summary_table(summary)},
      {"speedups",
       "Speed-up by both conventions: all tokens by all seconds over the same of plain decoding "
       "(ratio of sums), and the mean over prompts of each prompt's ratio; without prefill and "
       "with it. Intervals over prompts; over rounds, how far times alone move.",
       speedup_table(summary)},
      {"pairs",
       "Every two settings on the same prompts: accepted length of the first less that of the "
       "second, and speed of the first over that of the second, prefill left out. Paired "
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
       "tree's order.",
       step_table(summary)},
      {"lengths", "Shares of steps by accepted length, the bonus token included.",
       length_table(summary)},
      {"depths",
       "Acceptance by depth: of the steps whose judge came to tokens there, those that accepted "
       "one.",
       depth_table(summary)},
      {"kinds", "Results by kind of prompt.", kinds_table(summary)}};
  std::erase_if(tables, [](const CaptionedTable& one) { return one.table.rows.empty(); });
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
