#include "study/report/study_tables.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "study/report/setting_columns.h"
#include "study/report/table_text.h"

namespace coppice::study {
namespace {

void add_columns(Table& table, std::initializer_list<const char*> names) {
  for (const char* name : names) table.columns.push_back({name});
}

bool has_pairs(const Summary& summary) {
  return std::any_of(summary.rows.begin(), summary.rows.end(),
                     [](const SummaryRow& row) { return !row.cell.pair.empty(); });
}

Table kinds_table(const Summary& summary) {
  Summary kinds;
  kinds.rows = summary.kinds;
  return summary_table(kinds);
}

}  // namespace

Table comparison_table(const Summary& summary) {
  const bool with_pair = has_pairs(summary);
  Table table;
  if (with_pair) table.columns.push_back({"pair", Align::left});
  table.columns.push_back({"first", Align::left});
  table.columns.push_back({"second", Align::left});
  table.columns.push_back({"temperature"});
  table.columns.push_back({"rule", Align::left});
  add_columns(table, {"prompts", "accepted length, difference [95%]", "p", "p (Holm)",
                      "speed, ratio [95%]", "p of speed", "p of speed (Holm)"});
  for (const Comparison& one : summary.comparisons) {
    const Cell& first = summary.rows[one.first].cell;
    const Cell& second = summary.rows[one.second].cell;
    const bool two_runs = summary.rows[one.first].other_runs != summary.rows[one.second].other_runs;
    std::vector<std::string> row;
    if (with_pair) row.push_back(first.pair);
    row.insert(row.end(),
               {first.label(), second.label(), number_text(first.temperature),
                name_of(first.acceptance), cat(one.accepted_length.estimate.n),
                signed_interval(one.accepted_length.estimate, 2), p_text(one.accepted_length.p),
                p_text(one.accepted_length.p_holm), with_interval(one.speed.estimate, 2, two_runs),
                p_text(one.speed.p), p_text(one.speed.p_holm)});
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table speedup_table(const Summary& summary) {
  const bool with_rounds = std::any_of(summary.rows.begin(), summary.rows.end(),
                                       [](const SummaryRow& row) { return row.rounds.size() > 1; });
  std::vector<std::string> names = {"prompts", "ratio of sums [95%]", "with prefill [95%]",
                                    "mean of prompts' ratios [95%]", "mean, with prefill [95%]"};
  if (with_rounds) {
    names.insert(names.end(),
                 {"rounds", "speed-up over rounds [95%]", "tokens/s over rounds [95%]"});
  }
  return setting_table(summary, names, [&](const SummaryRow& s) {
    std::vector<std::string> row;
    if (s.cell.plain() && !with_rounds) return row;
    const auto speed = [&](const Estimate& e) { return with_interval(e, 2, s.other_runs > 0); };
    row = {cat(s.prompts), speed(s.speedup), speed(s.speedup_with_prefill), speed(s.mean_speedup),
           speed(s.mean_speedup_with_prefill)};
    if (with_rounds) {
      row.insert(row.end(), {cat(s.rounds.size()), speed(s.rounds_speedup),
                             with_interval(s.rounds_tokens_per_second, 1)});
    }
    return row;
  });
}

Table length_table(const Summary& summary) {
  constexpr std::size_t most_columns = 16;
  std::size_t longest = 0;
  for (const SummaryRow& s : summary.rows) longest = std::max(longest, s.lengths.size());
  const std::size_t columns = std::min(longest > 0 ? longest - 1 : 0, most_columns);
  std::vector<std::string> names = {"steps"};
  for (std::size_t c = 1; c <= columns; ++c) {
    names.push_back(cat(c, c == columns && longest - 1 > columns ? "+ %" : " %"));
  }
  return setting_table(summary, names, [&](const SummaryRow& s) {
    std::vector<std::string> row;
    if (s.cell.plain()) return row;
    std::vector<double> steps(columns, 0.0);
    for (std::size_t length = 1; length < s.lengths.size(); ++length) {
      steps[std::min(length, columns) - 1] += static_cast<double>(s.lengths[length]);
    }
    row.push_back(cat(s.steps));
    for (const double count : steps) row.push_back(percent(count, static_cast<double>(s.steps)));
    return row;
  });
}

Table depth_table(const Summary& summary) {
  const SettingColumns settings(summary);
  Table table;
  table.columns = settings.columns();
  add_columns(table, {"depth", "steps that came to it", "accepted", "prompts", "rate [95%]"});
  for (const SummaryRow& s : summary.rows) {
    if (s.cell.plain()) continue;
    for (const DepthRate& depth : s.depths) {
      std::vector<std::string> row = settings.of(s);
      row.insert(row.end(), {cat(depth.depth), cat(depth.reached), cat(depth.accepted),
                             cat(depth.rate.n), with_interval(depth.rate, 3)});
      table.rows.push_back(std::move(row));
    }
  }
  return table;
}

Table agreement_table(const Summary& summary) {
  const bool with_pair = has_pairs(summary);
  Table table;
  if (with_pair) table.columns.push_back({"pair", Align::left});
  table.columns.push_back({"temperature"});
  table.columns.push_back({"rule", Align::left});
  add_columns(table, {"texts compared", "texts that depart"});
  for (const Agreement& one : summary.agreements) {
    std::vector<std::string> row;
    if (with_pair) row.push_back(one.pair);
    row.insert(row.end(), {number_text(one.temperature),
                           one.temperature == 0.0 ? "any" : name_of(one.acceptance), cat(one.texts),
                           cat(one.divergences.size())});
    table.rows.push_back(std::move(row));
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
      table.rows.push_back({d.cell, d.prompt_id, cat(d.round + 1), cat(d.turn + 1),
                            cat(d.position + 1), id(d.expected), id(d.found)});
    }
  }
  return table;
}

std::vector<NamedTable> tables_of(const Summary& summary) {
  std::vector<NamedTable> tables = {
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
  std::erase_if(tables, [](const NamedTable& one) { return one.table.rows.empty(); });
  return tables;
}

}  // namespace coppice::study
