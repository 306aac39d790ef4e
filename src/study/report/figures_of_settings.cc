#include <algorithm>
#include <limits>
#include <utility>

#include "base/error.h"
#include "study/number_text.h"
#include "study/report/study_report.h"

namespace coppice::study {
namespace {

/// An estimate of every row against its tree size: lines over fixed sizes; sizes that are chosen
/// from costs stand alone, at their mean.
Chart over_sizes(const FigureGroup& group, const char* y_label, Estimate SummaryRow::*figure) {
  Chart chart;
  chart.x = {.label = "tree size (draft tokens)", .scale = Scale::log2};
  chart.y = {.label = y_label};
  chart.side_by_side = true;
  for (const std::string& policy : group.policies) {
    Series by_size{policy, {}, group.style(policy)};
    Series chosen{cat(policy, " auto"), {}, group.style(policy)};
    chosen.style->open = true;
    for (const SummaryRow* row : group.rows) {
      if (row->cell.name() != policy) continue;
      const Estimate& e = row->*figure;
      const std::int32_t asked = row->cell.asked_size();
      const double x = asked > 0 ? asked : row->tree_size;
      (asked > 0 ? by_size : chosen).points.push_back({x, e.value, e.low, e.high});
    }
    for (Series* one : {&by_size, &chosen}) {
      std::ranges::sort(one->points, {}, &Point::x);
      if (!one->points.empty()) chart.series.push_back(std::move(*one));
    }
  }
  return chart;
}

Figure accepted_length(const FigureGroup& group) {
  return group.named(
      "accepted_length",
      over_sizes(group, "accepted length (tokens per target pass)", &SummaryRow::accepted_length),
      cat("Accepted length against tree size, the bonus token included; ", group.prompts(),
          ", 95% intervals over prompts. Sizes that a policy chooses itself (auto, outlined) stand "
          "at their mean. No tree can bring more than its size plus one."));
}

Figure speedup(const FigureGroup& group) {
  Chart chart = over_sizes(group, "speed-up over plain decoding", &SummaryRow::speedup);
  chart.references = {{1.0, "plain decoding"}};
  return group.named(
      "speedup", chart,
      cat("Speed-up over plain decoding of the same prompts in the same run against tree size: "
          "ratio of sums, prefill left out; ",
          group.prompts(), ", 95% intervals over prompts."));
}

/// A row for each setting, a column for each accepted length.
Figure accepted_lengths(const FigureGroup& group) {
  constexpr std::size_t most_lengths = 16;
  std::size_t longest = 1;
  for (const SummaryRow* row : group.rows) longest = std::max(longest, row->lengths.size());
  const std::size_t columns = std::min(longest - 1, most_lengths);
  Chart chart;
  chart.x.label = "tokens that a step brought";
  for (std::size_t c = 1; c <= columns; ++c) {
    chart.x.names.push_back(cat(c == columns && longest - 1 > columns ? "≥" : "", c));
  }
  std::vector<double> shares;
  for (const SummaryRow* row : group.rows) {
    chart.y.names.push_back(cat(row->cell.label(), ": ", fixed(row->accepted_length.value, 2)));
    std::vector<double> counts(columns, 0.0);
    for (std::size_t length = 1; length < row->lengths.size(); ++length) {
      counts[std::min(length, columns) - 1] += static_cast<double>(row->lengths[length]);
    }
    for (const double count : counts) {
      shares.push_back(count > 0.0 ? count / static_cast<double>(row->steps)
                                   : std::numeric_limits<double>::quiet_NaN());
    }
  }
  chart.tiles = tiles_of(shares, columns);
  for (Tile& tile : chart.tiles) tile.words = fixed(100 * tile.value, 0);
  chart.colours = {.label = "share of steps", .low = 0.0, .per_cent = true};
  return group.named("accepted_lengths", chart,
                     cat("Distribution of accepted lengths, the bonus token included: of all steps "
                         "on ",
                         group.prompts(),
                         ", the share that brought so long a piece of text, in per cent. Behind "
                         "each setting's name its mean."));
}

}  // namespace

std::vector<Figure> figures_of_settings(const FigureGroup& group) {
  return {accepted_length(group), speedup(group), accepted_lengths(group)};
}

}  // namespace coppice::study
