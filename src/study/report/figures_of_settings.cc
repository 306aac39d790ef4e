#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/error.h"
#include "study/figures/charts.h"
#include "study/number_text.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

/// Lines over fixed tree sizes; sizes that are chosen from costs stand alone, at their mean.
std::vector<Series> series_of(const FigureGroup& group, Estimate SummaryRow::*figure) {
  std::vector<Series> series;
  for (const std::string& policy : group.policies) {
    const std::size_t style = group.style(policy);
    Series fixed{policy, {}, SeriesKind::measured, style};
    Series chosen{cat(policy, " auto"), {}, SeriesKind::measured, style, true};
    for (const SummaryRow* row : group.rows) {
      if (row->cell.name() != policy) continue;
      const Estimate& e = row->*figure;
      const std::int32_t asked =
          row->cell.tree_size > 0 ? row->cell.tree_size : row->cell.given_size;
      const double x = asked > 0 ? asked : row->tree_size;
      (asked > 0 ? fixed : chosen).points.push_back({x, e.value, e.low, e.high});
    }
    for (Series* one : {&fixed, &chosen}) {
      std::ranges::sort(one->points, [](const Point& a, const Point& b) { return a.x < b.x; });
      if (!one->points.empty()) series.push_back(std::move(*one));
    }
  }
  return series;
}

LineChart chart_of(const FigureGroup& group, const char* y, Estimate SummaryRow::*figure) {
  LineChart chart;
  chart.x = {"tree size (draft tokens)", Scale::log2};
  chart.y = {y};
  chart.side_by_side = true;
  chart.series = series_of(group, figure);
  return chart;
}

Figure accepted_length(const FigureGroup& group) {
  LineChart chart =
      chart_of(group, "accepted length (tokens per target pass)", &SummaryRow::accepted_length);
  Series oracle{"oracle", {}, SeriesKind::ceiling};
  for (const OracleRow& row : group.summary->oracle) {
    if (row.temperature != group.temperature || row.pair != group.pair) continue;
    oracle.points.push_back({static_cast<double>(row.size), row.accepted_length.value});
  }
  std::string caption =
      cat("Accepted length against tree size, the bonus token included; ", group.prompts(),
          ", 95% intervals over prompts. Sizes that a policy chooses itself (auto, outlined) stand "
          "at their mean.");
  if (!oracle.points.empty()) {
    chart.series.push_back(std::move(oracle));
    caption +=
        " Dashed: expected length of the best trees in hindsight, chosen by the target's own "
        "probabilities, along text of the target. No tree that is chosen without the randomness "
        "of the target's choice can do better; rejection and coupled noise share it and may, "
        "with a very good draft.";
  } else if (group.temperature == 0.0) {
    caption += " At temperature 0 the ceiling is the tree size plus one.";
  }
  return group.named("accepted_length", to_svg(chart), std::move(caption));
}

Figure speedup(const FigureGroup& group) {
  LineChart chart = chart_of(group, "speed-up over plain decoding", &SummaryRow::speedup);
  chart.references = {{ReferenceLine::Kind::horizontal, 1.0, "plain decoding"}};
  return group.named(
      "speedup", to_svg(chart),
      cat("Speed-up over plain decoding of the same prompts in the same run against tree size: "
          "ratio of sums, prefill left out; ",
          group.prompts(), ", 95% intervals over prompts."));
}

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
  std::ranges::stable_sort(chosen, [&](const Comparison* a, const Comparison* b) {
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

constexpr std::size_t most_lengths = 16;
constexpr std::int32_t most_depths = 16;

/// A row for each setting, a column for each accepted length.
Figure accepted_lengths(const FigureGroup& group) {
  std::size_t longest = 0;
  for (const SummaryRow* row : group.rows) longest = std::max(longest, row->lengths.size());
  const std::size_t columns = std::min(longest > 0 ? longest - 1 : 0, most_lengths);
  if (columns == 0) return {};
  HeatMap map;
  map.x_label = "tokens that a step brought";
  map.value = {"share of steps", Scale::linear, 0.0};
  map.value.per_cent = true;
  map.print_values = true;
  map.zero_is_empty = true;
  map.width = 190.0 + 40.0 * static_cast<double>(std::max<std::size_t>(columns, 6)) + 90.0;
  map.height = std::max(160.0, 70.0 + 22.0 * static_cast<double>(group.rows.size()));
  for (std::size_t c = 1; c <= columns; ++c) {
    map.x_names.push_back(c == columns && longest - 1 > columns ? cat("≥", c) : cat(c));
  }
  for (const SummaryRow* row : group.rows) {
    map.y_names.push_back(cat(row->cell.label(), ": ", fixed(row->accepted_length.value, 2)));
    for (const double count : row->steps_by_length(columns)) {
      map.cells.push_back(row->steps > 0 ? count / static_cast<double>(row->steps) : 0.0);
    }
  }
  return group.named("accepted_lengths", to_svg(map),
                     cat("Distribution of accepted lengths, the bonus token included: of all steps "
                         "on ",
                         group.prompts(),
                         ", the share that brought so long a piece of text. Behind each setting's "
                         "name its mean."));
}

Figure acceptance_by_depth(const FigureGroup& group) {
  LineChart chart;
  chart.x = {"depth in the tree"};
  chart.x.whole = true;
  chart.x.low = 1.0;
  chart.y = {"acceptance rate", Scale::linear, {}, 1.0};
  chart.side_by_side = true;
  for (const std::string& policy : group.policies) {
    const SummaryRow* row = group.largest(policy);
    if (row == nullptr) continue;
    Series series{row->cell.label(), {}, SeriesKind::measured, group.style(policy)};
    for (const DepthRate& depth : row->depths) {
      if (depth.reached < least_counted || depth.depth > most_depths) continue;
      series.points.push_back(
          {static_cast<double>(depth.depth), depth.rate.value, depth.rate.low, depth.rate.high});
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  if (chart.series.empty()) return {};
  return group.named(
      "acceptance_by_depth", to_svg(chart),
      cat("Acceptance by depth, each policy with its largest trees: of the steps whose judge came "
          "to tokens at this depth, the share that accepted one. Depths that were reached fewer "
          "than ",
          least_counted, " times are left out; ", group.prompts(),
          ", 95% intervals over prompts."));
}

Figure time_by_component(const FigureGroup& group) {
  StackedBars bars;
  bars.value_label = "share of time after prefill";
  bars.parts = {"draft", "drawing children", "tree construction", "target", "judging", "other"};
  const auto add_bar = [&](const SummaryRow& row, std::string policy, std::string size) {
    Bar& bar = bars.bars.emplace_back(Bar{std::move(policy), std::move(size)});
    for (const auto& [name, part] : Components::of_step()) bar.parts.push_back(row.seconds.*part);
    bar.note = cat(std::llround(row.microseconds_per_step(row.seconds.decode())), " us/step");
  };
  if (group.plain != nullptr) add_bar(*group.plain, "plain", "");
  for (const SummaryRow* row : group.rows) {
    add_bar(*row, row->cell.name(), row->cell.size_text());
  }
  return group.named(
      "time", to_svg(bars),
      "Where the time of a step goes, after DySpec's figure 4; behind the bars, a step's whole "
      "time. Where a device draws children and judges behind the models' passes, that counts as "
      "theirs.");
}

/// The first prompt's text with each policy's largest trees.
std::vector<Figure> step_by_step(const FigureGroup& group) {
  std::vector<Figure> figures;
  for (const std::string& policy : group.policies) {
    const SummaryRow* row = group.largest(policy);
    if (row == nullptr) continue;
    const Result* shown = nullptr;
    for (const Result& one : group.results->results()) {
      const bool first = one.prompt == 0 && one.round == 0;
      if (first && one.cell == row->cell.key()) shown = &one;
    }
    if (shown == nullptr) continue;
    const auto values = [](const std::vector<std::int32_t>& list) {
      return std::vector<double>(list.begin(), list.end());
    };
    StepChart chart;
    const std::size_t style = group.style(policy);
    chart.panels = {{"tree size", values(shown->tree_sizes), style},
                    {"accepted tokens", values(shown->accepted), style}};
    figures.push_back(group.named(
        cat("steps_", row->cell.label()), to_svg(chart),
        cat("Draft tokens of the tree and those accepted (the bonus token not counted) in each "
            "step of the first prompt's text: ",
            row->cell.label(), ", after DySpec's figure 5.")));
  }
  return figures;
}

}  // namespace

std::vector<Figure> figures_by_size(const FigureGroup& group) {
  return {accepted_length(group), speedup(group)};
}

std::vector<Figure> figures_of_pairs(const FigureGroup& group) {
  const Comparisons comparisons = comparisons_shown(group);
  if (comparisons.empty()) return {};
  const std::string how =
      cat(" 95% intervals and two-sided p of a paired bootstrap over the same ", group.prompts(),
          "; p after Holm over all pairs of settings of the study (their table has every one). "
          "Filled: p below 0.05.");
  IntervalPlot length;
  length.x = {"difference in accepted length (tokens)"};
  length.rows = rows_of(group, comparisons, &Comparison::accepted_length, true);
  IntervalPlot speed;
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

std::vector<Figure> figures_of_steps(const FigureGroup& group) {
  std::vector<Figure> figures = {accepted_lengths(group), acceptance_by_depth(group),
                                 time_by_component(group)};
  for (Figure& one : step_by_step(group)) figures.push_back(std::move(one));
  std::erase_if(figures, [](const Figure& one) { return one.svg.empty(); });
  return figures;
}

}  // namespace coppice::study
