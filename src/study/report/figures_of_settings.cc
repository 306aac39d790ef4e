#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <utility>

#include "base/error.h"
#include "study/figures/text.h"
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
    Series fixed{policy, {}, group.style(policy)};
    Series chosen{cat(policy, " auto"), {}, group.style(policy)};
    chosen.style->open = true;
    for (const SummaryRow* row : group.rows) {
      if (row->cell.name() != policy) continue;
      const Estimate& e = row->*figure;
      const std::int32_t asked = row->cell.asked_size();
      const double x = asked > 0 ? asked : row->tree_size;
      (asked > 0 ? fixed : chosen).points.push_back({x, e.value, e.low, e.high});
    }
    for (Series* one : {&fixed, &chosen}) {
      std::ranges::sort(one->points, {}, &Point::x);
      if (!one->points.empty()) chart.series.push_back(std::move(*one));
    }
  }
  return chart;
}

Figure accepted_length(const FigureGroup& group) {
  Chart chart =
      over_sizes(group, "accepted length (tokens per target pass)", &SummaryRow::accepted_length);
  Series oracle{"oracle", {}, ceiling_style()};
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
  return group.named("accepted_length", chart, std::move(caption));
}

Figure speedup(const FigureGroup& group) {
  Chart chart = over_sizes(group, "speed-up over plain decoding", &SummaryRow::speedup);
  chart.references = {{ReferenceLine::Kind::horizontal, 1.0, "plain decoding"}};
  return group.named(
      "speedup", chart,
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

bool is_alike(const FigureGroup& group, const Comparison& one) {
  return cell_at(group, one.first).size_text() == cell_at(group, one.second).size_text();
}

/// Of the group, with an interval: policies at equal sizes, or all where there are none.
Comparisons comparisons_shown(const FigureGroup& group) {
  Comparisons all, alike;
  for (const Comparison& one : group.summary->comparisons) {
    if (!group.holds(cell_at(group, one.first))) continue;
    if (!std::isfinite(one.accepted_length.estimate.low)) continue;
    all.push_back(&one);
    if (is_alike(group, one)) alike.push_back(&one);
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
  std::ranges::stable_sort(
      chosen, {}, [&](const Comparison* one) { return cell_at(group, one->first).asked_size(); });
  return chosen;
}

/// A row for each comparison, those of one size below its name.
Chart paired(const FigureGroup& group, const Comparisons& comparisons, const char* label,
             Tested Comparison::*what, double none) {
  Chart chart;
  chart.x.label = label;
  chart.references = {{ReferenceLine::Kind::vertical, none}};
  Series clear{"", {}, series_style(0), false}, open = clear;
  open.style->open = true;
  std::string size;
  const auto add_row = [&](std::string name, std::string note) {
    chart.y.names.push_back(std::move(name));
    chart.notes.push_back(std::move(note));
  };
  for (const Comparison* one : comparisons) {
    const Cell &first = cell_at(group, one->first), &second = cell_at(group, one->second);
    const Estimate& e = (one->*what).estimate;
    const double p = (one->*what).p_holm;
    const bool alike = is_alike(group, *one);
    if (alike && size != first.size_text()) {
      size = first.size_text();
      add_row(size == "auto" ? "automatic trees" : cat("trees of ", size), "");
    }
    add_row(
        alike ? cat(first.name(), " / ", second.name()) : cat(first.label(), " / ", second.label()),
        cat(none == 0.0 ? signed_interval(e, 2) : with_interval(e, 2), "  p ", p_text(p)));
    const double y = static_cast<double>(chart.y.names.size()) - 0.5;
    (p < significance ? clear : open).points.push_back({e.value, y, e.low, e.high});
  }
  chart.series = {std::move(clear), std::move(open)};
  return chart;
}

constexpr std::size_t most_lengths = 16;
constexpr std::int32_t most_depths = 16;

/// A row for each setting, a column for each accepted length.
Figure accepted_lengths(const FigureGroup& group) {
  std::size_t longest = 1;
  for (const SummaryRow* row : group.rows) longest = std::max(longest, row->lengths.size());
  const std::size_t columns = std::min(longest - 1, most_lengths);
  Chart chart;
  chart.x.label = "tokens that a step brought";
  for (std::size_t c = 1; c <= columns; ++c) {
    chart.x.names.push_back(c == columns && longest - 1 > columns ? cat("≥", c) : cat(c));
  }
  std::vector<double> shares;
  for (const SummaryRow* row : group.rows) {
    chart.y.names.push_back(cat(row->cell.label(), ": ", fixed(row->accepted_length.value, 2)));
    for (const double count : row->steps_by_length(columns)) {
      shares.push_back(count > 0.0 ? count / static_cast<double>(row->steps)
                                   : std::numeric_limits<double>::quiet_NaN());
    }
  }
  chart.tiles = tiles_of(shares, columns);
  for (Tile& tile : chart.tiles) tile.words = fixed_number(100 * tile.value, 0);
  chart.colours = {{.label = "share of steps", .low = 0.0, .per_cent = true}};
  return group.named(
      "accepted_lengths", chart,
      cat("Distribution of accepted lengths, the bonus token included: of all steps "
          "on ",
          group.prompts(),
          ", the share that brought so long a piece of text, in per cent. Behind each "
          "setting's name its mean."));
}

Figure acceptance_by_depth(const FigureGroup& group) {
  Chart chart;
  chart.x = {.label = "depth in the tree", .low = 1.0, .whole = true};
  chart.y = {.label = "acceptance rate", .high = 1.0};
  chart.side_by_side = true;
  for (const std::string& policy : group.policies) {
    const SummaryRow* row = group.largest(policy);
    if (row == nullptr) continue;
    Series series{row->cell.label(), {}, group.style(policy)};
    for (const DepthRate& depth : row->depths) {
      if (depth.reached < least_counted || depth.depth > most_depths) continue;
      series.points.push_back(
          {static_cast<double>(depth.depth), depth.rate.value, depth.rate.low, depth.rate.high});
    }
    if (!series.points.empty()) chart.series.push_back(std::move(series));
  }
  return group.named(
      "acceptance_by_depth", chart,
      cat("Acceptance by depth, each policy with its largest trees: of the steps whose judge came "
          "to tokens at this depth, the share that accepted one. Depths that were reached fewer "
          "than ",
          least_counted, " times are left out; ", group.prompts(),
          ", 95% intervals over prompts."));
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
      chart.tiles.push_back({start, end, y, y + 1, part, area_colour(p),
                             fixed_number(100 * part, 0) + "%",
                             cat(parts[p], ": ", fixed_number(100 * part, 1), "%")});
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
    const SummaryRow* row = group.largest(policy);
    if (row == nullptr) continue;
    const Result* shown = nullptr;
    for (const Result& one : group.results->results()) {
      const bool first = one.prompt == group.results->plan().prompts[0].id && one.round == 0;
      if (first && one.cell == row->cell.key()) shown = &one;
    }
    if (shown == nullptr) continue;
    Chart chart;
    chart.x = {.label = "step", .whole = true};
    chart.y = {.label = "tokens", .low = 0.0};
    chart.series = {stairs("tree size", shown->tree_sizes, group.style(policy)),
                    stairs("accepted tokens", shown->accepted, {strong_ink, "", Marker::none})};
    figures.push_back(group.named(
        cat("steps_", row->cell.label()), chart,
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
  return {
      group.named("paired_length",
                  paired(group, comparisons, "difference in accepted length (tokens)",
                         &Comparison::accepted_length, 0.0),
                  "Accepted length of the first policy less that of the second." + how),
      group.named(
          "paired_speed", paired(group, comparisons, "ratio of speeds", &Comparison::speed, 1.0),
          "Tokens per second of the first policy over those of the second, prefill left out." +
              how)};
}

std::vector<Figure> figures_of_steps(const FigureGroup& group) {
  std::vector<Figure> figures = {accepted_lengths(group), acceptance_by_depth(group),
                                 time_by_component(group)};
  for (Figure& one : step_by_step(group)) figures.push_back(std::move(one));
  return figures;
}

}  // namespace coppice::study
