#include <algorithm>
#include <cmath>
#include <utility>

#include "base/error.h"
#include "study/figures/charts.h"
#include "study/number_text.h"
#include "study/report/study_figures.h"

namespace coppice::study {
namespace {

constexpr std::size_t most_rows = 30;
constexpr double significance = 0.05;

using Comparisons = std::vector<const Comparison*>;

const Cell& cell_at(const FigureGroup& group, std::size_t place) {
  return group.summary->rows[place].cell;
}

/// Of the group, with an interval: policies at equal sizes, or all where there are none.
Comparisons comparisons_shown(const FigureGroup& group) {
  Comparisons all, alike;
  for (const Comparison& one : group.summary->comparisons) {
    const Cell& first = cell_at(group, one.first);
    const bool in_group = first.pair == group.pair && first.temperature == group.temperature &&
                          first.acceptance == group.acceptance;
    if (!in_group || !std::isfinite(one.accepted_length.estimate.low)) continue;
    all.push_back(&one);
    if (first.size_text() == cell_at(group, one.second).size_text()) alike.push_back(&one);
  }
  Comparisons chosen = alike.empty() ? all : alike;
  if (chosen.size() > most_rows) {
    // Those with the policy named first alone.
    std::erase_if(chosen, [&](const Comparison* one) {
      return cell_at(group, one->first).name() != group.policies.front() &&
             cell_at(group, one->second).name() != group.policies.front();
    });
  }
  if (chosen.size() > most_rows) chosen.resize(most_rows);
  std::stable_sort(chosen.begin(), chosen.end(), [&](const Comparison* a, const Comparison* b) {
    const auto size = [&](const Comparison* one) {
      const Cell& cell = cell_at(group, one->first);
      return cell.tree_size > 0 ? cell.tree_size : cell.given_size;
    };
    return size(a) < size(b);
  });
  return chosen;
}

std::vector<IntervalRow> rows_of(const FigureGroup& group, const Comparisons& comparisons,
                                 Tested Comparison::*what, bool is_difference) {
  std::vector<IntervalRow> rows;
  for (const Comparison* one : comparisons) {
    const Cell& first = cell_at(group, one->first);
    const Cell& second = cell_at(group, one->second);
    const Tested& tested = one->*what;
    const bool alike = first.size_text() == second.size_text();
    IntervalRow row;
    const std::string size = first.size_text();
    if (alike) row.group = size == "auto" ? "automatic trees" : cat("trees of ", size);
    row.label =
        alike ? cat(first.name(), " / ", second.name()) : cat(first.label(), " / ", second.label());
    row.value = tested.estimate.value;
    row.low = tested.estimate.low;
    row.high = tested.estimate.high;
    row.clear = tested.p_holm < significance;
    row.note =
        cat(is_difference ? signed_interval(tested.estimate, 2) : with_interval(tested.estimate, 2),
            "  p ", p_text(tested.p_holm));
    rows.push_back(std::move(row));
  }
  return rows;
}

}  // namespace

std::vector<NamedFigure> figures_of_pairs(const FigureGroup& group) {
  const Comparisons comparisons = comparisons_shown(group);
  if (comparisons.empty()) return {};
  const std::string how =
      cat(" 95% intervals and two-sided p of a paired bootstrap over the same ", group.prompts(),
          "; p after Holm over all pairs of settings of the study (their table has every one). "
          "Filled: p below 0.05.");
  IntervalPlot length;
  length.width = 640;
  length.x = {"difference in accepted length (tokens)"};
  length.rows = rows_of(group, comparisons, &Comparison::accepted_length, true);
  IntervalPlot speed;
  speed.width = 640;
  speed.x = {"ratio of speeds"};
  speed.none = 1.0;
  speed.rows = rows_of(group, comparisons, &Comparison::speed, false);
  return {group.named("paired_length", to_svg(length),
                      "Accepted length of the first policy less that of the second." + how),
          group.named("paired_speed", to_svg(speed),
                      "Tokens per second of the first policy over those of the second, prefill "
                      "left out." +
                          how)};
}

}  // namespace coppice::study
