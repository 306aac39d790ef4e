#include <algorithm>
#include <utility>

#include "base/error.h"
#include "study/figures/charts.h"
#include "study/report/study_figures.h"

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
      std::sort(one->points.begin(), one->points.end(),
                [](const Point& a, const Point& b) { return a.x < b.x; });
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

NamedFigure accepted_length(const FigureGroup& group) {
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

NamedFigure speedup(const FigureGroup& group) {
  LineChart chart = chart_of(group, "speed-up over plain decoding", &SummaryRow::speedup);
  chart.references = {{ReferenceLine::Kind::horizontal, 1.0, "plain decoding"}};
  return group.named(
      "speedup", to_svg(chart),
      cat("Speed-up over plain decoding of the same prompts in the same run against tree size: "
          "ratio of sums, prefill left out; ",
          group.prompts(), ", 95% intervals over prompts."));
}

}  // namespace

std::vector<NamedFigure> figures_by_size(const FigureGroup& group) {
  return {accepted_length(group), speedup(group)};
}

}  // namespace coppice::study
