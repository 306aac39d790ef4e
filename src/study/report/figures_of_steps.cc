#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/error.h"
#include "study/figures/charts.h"
#include "study/number_text.h"
#include "study/report/study_figures.h"

namespace coppice::study {
namespace {

constexpr std::size_t most_lengths = 16;
constexpr std::int32_t most_depths = 16;

/// A row for each setting, a column for each accepted length.
NamedFigure accepted_lengths(const FigureGroup& group) {
  std::size_t longest = 0;
  for (const SummaryRow* row : group.rows) longest = std::max(longest, row->lengths.size());
  const std::size_t columns = std::min(longest > 0 ? longest - 1 : 0, most_lengths);
  if (columns == 0) return {};
  HeatMap map;
  map.x = {"tokens that a step brought"};
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

NamedFigure acceptance_by_depth(const FigureGroup& group) {
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

NamedFigure time_by_component(const FigureGroup& group) {
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
std::vector<NamedFigure> step_by_step(const FigureGroup& group) {
  std::vector<NamedFigure> figures;
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

std::vector<NamedFigure> figures_of_steps(const FigureGroup& group) {
  std::vector<NamedFigure> figures = {accepted_lengths(group), acceptance_by_depth(group),
                                      time_by_component(group)};
  for (NamedFigure& one : step_by_step(group)) figures.push_back(std::move(one));
  std::erase_if(figures, [](const NamedFigure& one) { return one.svg.empty(); });
  return figures;
}

}  // namespace coppice::study
