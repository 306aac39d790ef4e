#include <algorithm>
#include <array>
#include <cmath>
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

Figure time_by_component(const FigureGroup& group) {
  constexpr std::array parts = {"draft",  "drawing children", "tree construction",
                                "target", "judging",          "other"};
  Chart chart;
  chart.x = {.label = "share of time after prefill", .low = 0.0, .high = 1.0, .per_cent = true};
  for (std::size_t p = 0; p < parts.size(); ++p) {
    chart.legend.push_back({parts[p], {}, area_colour(p)});
  }
  std::vector<const SummaryRow*> rows = group.rows;
  if (group.plain != nullptr) rows.insert(rows.begin(), group.plain);
  for (const SummaryRow* row : rows) {
    const double whole = row->seconds.decode(), y = static_cast<double>(chart.y.names.size());
    double end = 0.0;
    for (std::size_t p = 0; p < parts.size() && whole > 0.0; ++p) {
      const double part = row->seconds.*Components::of_step()[p].second / whole, start = end;
      if (part == 0.0) continue;
      end += part;
      chart.tiles.push_back({start, end, y, y + 1, part, area_colour(p), fixed(100 * part, 0) + "%",
                             cat(parts[p], ": ", fixed(100 * part, 1), "%")});
    }
    chart.y.names.push_back(row->cell.label());
    chart.notes.push_back(cat(std::llround(row->microseconds_per_step(whole)), " us/step"));
  }
  return group.named(
      "time", chart,
      "Where the time of a step goes, after DySpec's figure 4; behind the bars, a step's whole "
      "time. Where a device draws children and judges behind the models' passes, that counts as "
      "theirs.");
}

/// What each step brought, as stairs.
Series stairs(std::string name, const std::vector<std::int32_t>& values, SeriesStyle style) {
  style.marker = Marker::none;
  Series series{std::move(name), {}, style};
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double step = static_cast<double>(i) + 1.0;
    for (const double x : {step - 0.5, step + 0.5}) {
      series.points.push_back({x, static_cast<double>(values[i])});
    }
  }
  return series;
}

/// The first prompt's text with each policy's largest trees.
std::vector<Figure> step_by_step(const FigureGroup& group) {
  std::vector<Figure> figures;
  for (const std::string& policy : group.policies) {
    const SummaryRow* largest = nullptr;
    for (const SummaryRow* row : group.rows) {
      if (row->cell.name() != policy) continue;
      if (largest == nullptr || row->tree_size > largest->tree_size) largest = row;
    }
    if (largest == nullptr) continue;
    const std::string label = largest->cell.label();
    for (const Result& one : group.results->results()) {
      const bool first = one.prompt == group.results->plan().prompts[0].id && one.round == 0;
      if (!first || one.cell != largest->cell.key()) continue;
      Chart chart;
      chart.x = {.label = "step", .whole = true};
      chart.y = {.label = "tokens", .low = 0.0};
      chart.series = {stairs("tree size", one.tree_sizes, group.style(policy)),
                      stairs("accepted tokens", one.accepted, {strong_ink, "", Marker::none})};
      figures.push_back(group.named(
          cat("steps_", label), chart,
          cat("Draft tokens of the tree and those accepted (the bonus token not counted) in each "
              "step of the first prompt's text: ",
              label, ", after DySpec's figure 5.")));
    }
  }
  return figures;
}

}  // namespace

std::vector<Figure> figures_of_settings(const FigureGroup& group) {
  std::vector<Figure> figures = {accepted_length(group), speedup(group), accepted_lengths(group),
                                 time_by_component(group)};
  for (Figure& one : step_by_step(group)) figures.push_back(std::move(one));
  return figures;
}

}  // namespace coppice::study
