#include "study/report/verdict.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "study/figures/text.h"
#include "study/report/summary.h"

namespace coppice::study {
namespace {

using Places = std::vector<std::size_t>;

bool is_told_apart(const Tested& speed) { return speed.p_holm < 0.05; }

/// Places of the rows of each temperature and rule, plain decoding's among them.
std::vector<Places> groups_of(const std::vector<SummaryRow>& rows) {
  std::vector<Places> groups;
  for (std::size_t i = 0; i < rows.size(); ++i) {
    const auto group = std::ranges::find_if(groups, [&](const Places& one) {
      return rows[one.front()].cell.plain_row_key() == rows[i].cell.plain_row_key();
    });
    // Plain decoding of further runs is no other setting: its speed-up is 1 as well.
    const bool has_plain = group != groups.end() && rows[group->front()].cell.plain();
    if (has_plain && rows[i].cell.plain()) continue;
    (group == groups.end() ? groups.emplace_back() : *group).push_back(i);
  }
  return groups;
}

std::string words_of_setting(const Cell& cell) {
  return cell.plain() ? std::string("plain decoding") : cell.label();
}

bool compares_two_runs(const Summary& summary, const Verdict& verdict) {
  return compares_runs(summary.rows[verdict.leader], summary.rows[verdict.baseline]);
}

std::string heading_of(const Cell& cell) {
  const std::string temperature = cat("Temperature ", number_text(cell.temperature));
  return cell.temperature == 0.0 ? temperature : cat(temperature, ", ", name_of(cell.acceptance));
}

std::string names_of(const Summary& summary, const Places& places, const char* between) {
  std::string names;
  for (const std::size_t place : places) {
    names += (names.empty() ? "" : between) + words_of_setting(summary.rows[place].cell);
  }
  return names;
}

}  // namespace

bool Verdict::is_separable() const { return is_told_apart(speed); }

std::vector<Verdict> verdicts_of(const std::vector<SummaryRow>& rows,
                                 const std::vector<PromptColumns>& columns) {
  if (columns.empty() || columns[0].steps.empty()) return {};  // no prompt is complete
  const auto fastest = [&](const Places& places) {
    return *std::ranges::max_element(places, {},
                                     [&](std::size_t place) { return rows[place].speedup.value; });
  };
  std::vector<Verdict> verdicts;
  std::vector<std::pair<std::size_t, std::size_t>> which;
  for (const Places& group : groups_of(rows)) {
    Places plain, chains, trees;
    for (const std::size_t place : group) {
      const Cell& cell = rows[place].cell;
      const bool is_chain = cell.policy == Policy::chain && !cell.looks_up;
      (cell.plain() ? plain : is_chain ? chains : trees).push_back(place);
    }
    // A study without trees asks whether a chain pays.
    if (trees.empty()) trees.swap(chains);
    Places others = plain;
    others.insert(others.end(), chains.begin(), chains.end());
    if (trees.empty() || others.empty()) continue;
    verdicts.push_back({fastest(trees), fastest(others), {}, {}});
    for (const std::size_t place : group) {
      if (place != verdicts.back().leader) which.emplace_back(verdicts.back().leader, place);
    }
  }
  const std::vector<Comparison> comparisons = compare_rows(columns, which);
  for (Verdict& verdict : verdicts) {
    for (const Comparison& one : comparisons) {
      if (one.first != verdict.leader) continue;
      if (one.second == verdict.baseline) {
        verdict.speed = one.speed;
      } else if (!rows[one.second].cell.plain() && !is_told_apart(one.speed)) {
        verdict.alike.push_back(one.second);
      }
    }
  }
  return verdicts;
}

std::string verdict_sentence(const Summary& summary, const Verdict& verdict) {
  const Cell& cell = summary.rows[verdict.leader].cell;
  const std::string leader = words_of_setting(cell),
                    baseline = words_of_setting(summary.rows[verdict.baseline].cell);
  const Estimate& ratio = verdict.speed.estimate;
  const std::string times = with_interval(ratio, 2, compares_two_runs(summary, verdict)),
                    n = cat(ratio.n, ratio.n == 1 ? " prompt" : " prompts"),
                    heading = heading_of(cell);
  if (ratio.n < least_prompts) {
    return cat(heading, ": nothing is separable on ", n, ", too few for an interval; ", leader,
               " made ", times, " times the speed of ", baseline, ".");
  }
  const std::string p = cat("p ", verdict.speed.p_holm < 0.001 ? "" : "= ",
                            p_text(verdict.speed.p_holm), " after Holm, ", n);
  if (!verdict.is_separable()) {
    return cat(heading, ": nothing is separable from ", baseline, "; ", leader, " made ", times,
               " times its speed (", p, ").");
  }
  if (ratio.value < 1.0) {
    return cat(heading, ": ", baseline, " is fastest; the next, ", leader, ", made ", times,
               " times its speed (", p, ").");
  }
  const std::string alike = names_of(summary, verdict.alike, ", ");
  return cat(heading, ": ", leader, " is fastest, ", times, " times the speed of ", baseline, " (",
             p, ")", alike.empty() ? "" : "; not separable from it: ", alike, ".");
}

Table verdict_table(const Summary& summary) {
  Table table = {{{"temperature", Align::right, true}, {"rule", Align::left, true}}, {}};
  table.columns.insert(table.columns.end(), {{"leader", Align::left}, {"baseline", Align::left}});
  add_columns(table, {"prompts", "speed, ratio [95%]", "p of speed (Holm)"});
  table.columns.push_back({"separable", Align::left});
  table.columns.push_back({"not separable from the leader", Align::left});
  for (const Verdict& one : summary.verdicts) {
    const Cell& cell = summary.rows[one.leader].cell;
    table.rows.push_back({number_text(cell.temperature), name_of(cell.acceptance),
                          words_of_setting(cell), words_of_setting(summary.rows[one.baseline].cell),
                          cat(one.speed.estimate.n),
                          with_interval(one.speed.estimate, 2, compares_two_runs(summary, one)),
                          p_text(one.speed.p_holm), one.is_separable() ? "yes" : "no",
                          one.is_separable() ? names_of(summary, one.alike, ", ") : ""});
  }
  return without_empty(std::move(table), {"not separable from the leader"});
}

}  // namespace coppice::study
