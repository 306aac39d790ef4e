// Charts of rows with names at the left and notes at the right: stacked bars and forest plots.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "study/figures/charts.h"
#include "study/figures/frame.h"
#include "study/figures/style.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double bar_height = 17, bar_pitch = 22, group_gap = 9;
constexpr double longest_bar_name = 190;  // dyspec-threshold-plain fits
constexpr double row_pitch = 20, row_inset = 8;
constexpr double longest_row_name = 260;

void widen(double& width, const std::string& text, double most) {
  width = std::max(width, std::min(text_width(text, tick_font), most));
}

void draw_bar(Svg& svg, const StackedBars& chart, const Bar& bar, const Axis& x, double top) {
  const double whole = std::accumulate(bar.parts.begin(), bar.parts.end(), 0.0);
  double sum = 0, end = x.at(0);
  for (std::size_t p = 0; p < bar.parts.size() && whole > 0; ++p) {
    const double part = bar.parts[p];
    const double start = end;
    sum += part;
    end = x.at(sum / whole);
    if (part == 0) continue;
    const std::string_view fill = area_colour(p);
    const double share = 100 * part / whole;
    const std::string printed = fixed_number(share, 0) + "%";
    svg.open_group(chart.parts[p] + ": " + compact_number(part) + " (" + fixed_number(share, 1) +
                   "%)");
    svg.rect({start, top, end, top + bar_height}, fill);
    if (text_width(printed, tick_font - 1) + 6 <= end - start) {
      svg.text({(start + end) / 2, top + bar_height / 2 + 0.35 * (tick_font - 1)}, printed,
               {tick_font - 1, Anchor::middle, ink_on(fill)});
    }
    svg.close();
  }
  svg.text({end + 6, top + bar_height / 2 + 0.35 * tick_font},
           fit_text(bar.note, tick_font, longest_bar_name), {tick_font});
}

void draw_estimate(Svg& svg, const IntervalRow& row, const Axis& x, double y) {
  if (!can_show(x.scale(), row.value)) return;
  constexpr double cap = 3.5;
  const SeriesStyle style = {"series0", "", Marker::circle, !row.clear};
  svg.open_group(row.label + ": " + compact_number(row.value) + " [" + compact_number(row.low) +
                 ", " + compact_number(row.high) + "]");
  if (std::isfinite(row.low) && std::isfinite(row.high)) {
    const double low = x.clamped_at(row.low), high = x.clamped_at(row.high);
    const Stroke stroke = {style.colour, 1.5};
    svg.line({low, y}, {high, y}, stroke);
    if (x.covers(row.low)) svg.line({low, y - cap}, {low, y + cap}, stroke);
    if (x.covers(row.high)) svg.line({high, y - cap}, {high, y + cap}, stroke);
  }
  if (x.covers(row.value)) draw_marker(svg, style, {x.at(row.value), y});
  svg.close();
}

}  // namespace

std::string to_svg(const StackedBars& chart) {
  const auto starts_group = [&](std::size_t bar) {
    return bar == 0 || chart.bars[bar].group != chart.bars[bar - 1].group;
  };
  double group_width = 0, label_width = 0, note_width = 0, bars_height = 0;
  for (std::size_t i = 0; i < chart.bars.size(); ++i) {
    widen(group_width, chart.bars[i].group, longest_bar_name);
    widen(label_width, chart.bars[i].label, longest_bar_name);
    widen(note_width, chart.bars[i].note, longest_bar_name);
    bars_height += bar_pitch + (i > 0 && starts_group(i) ? group_gap : 0);
  }
  std::vector<LegendEntry> entries;
  for (std::size_t p = 0; p < chart.parts.size(); ++p) {
    entries.push_back({chart.parts[p], {}, area_colour(p)});
  }
  const double left = picture_margin + group_width + (label_width > 0 ? label_width + 12 : 0) + 8;
  const double right =
      std::max(chart_width - picture_margin - (note_width > 0 ? note_width + 8 : 8), left + 40);
  const double top = picture_margin + legend_height(entries, right - left + 12) + 10;
  const Box plot = {left, top, right, top + bars_height + 2};
  const AxisSpec spec = {.label = chart.value_label, .low = 0, .high = 1, .per_cent = true};
  const Axis x(spec, DataRange(spec.scale), AxisSide::horizontal, left, right);

  Svg svg(chart_width, plot.bottom + x_axis_height(chart.value_label) + 4, chart.value_label);
  draw_legend(svg, entries, {left - 12, picture_margin}, right - left + 12);
  double bar_top = top;
  for (std::size_t i = 0; i < chart.bars.size(); ++i, bar_top += bar_pitch) {
    if (i > 0 && starts_group(i)) bar_top += group_gap;
    const double baseline = bar_top + bar_height / 2 + 0.35 * tick_font;
    if (starts_group(i)) {
      svg.text({picture_margin, baseline},
               fit_text(chart.bars[i].group, tick_font, longest_bar_name), {tick_font});
    }
    svg.text({left - 8, baseline}, fit_text(chart.bars[i].label, tick_font, longest_bar_name),
             {tick_font, Anchor::end});
    draw_bar(svg, chart, chart.bars[i], x, bar_top);
  }
  draw_x_axis(svg, x, plot);
  return svg.finish();
}

std::string to_svg(const IntervalPlot& plot) {
  const auto opens_group = [&](std::size_t row) {
    const std::string& group = plot.rows[row].group;
    return !group.empty() && (row == 0 || group != plot.rows[row - 1].group);
  };
  double label_width = 0, note_width = 0, rows_height = 0;
  DataRange range(plot.x.scale);
  range.include(plot.none);
  for (std::size_t i = 0; i < plot.rows.size(); ++i) {
    const IntervalRow& row = plot.rows[i];
    widen(label_width, row.label, longest_row_name);
    widen(label_width, row.group, longest_row_name);
    note_width = std::max(note_width, text_width(row.note, tick_font));
    for (const double value : {row.value, row.low, row.high}) range.include(value);
    rows_height += row_pitch + (opens_group(i) ? row_pitch : 0);
  }
  const double left = picture_margin + label_width + 14;
  const double right = std::max(chart_width - picture_margin - note_width - 12, left + 60);
  const double top = picture_margin;
  const Box box = {left, top, right, top + rows_height + 4};
  const Axis x(plot.x, range, AxisSide::horizontal, left + row_inset, right - row_inset);

  Svg svg(std::max(chart_width, right + note_width + 12 + picture_margin),
          box.bottom + x_axis_height(plot.x.label) + 4, plot.x.label);
  const auto draw_upright = [&](double value, const Stroke& stroke) {
    svg.line({x.at(value), box.top}, {x.at(value), box.bottom}, stroke);
  };
  for (const Tick& tick : x.ticks()) draw_upright(tick.value, {grid_ink, 0.7});
  const SeriesStyle none = reference_style();
  if (x.covers(plot.none)) draw_upright(plot.none, {none.colour, 1.3, none.dash});
  double y = box.top + row_pitch / 2;
  for (std::size_t i = 0; i < plot.rows.size(); ++i, y += row_pitch) {
    const IntervalRow& row = plot.rows[i];
    if (opens_group(i)) {
      svg.text({picture_margin, y + 0.35 * tick_font},
               fit_text(row.group, tick_font, longest_row_name), {.size = tick_font, .bold = true});
      y += row_pitch;
    }
    svg.text({left - 10, y + 0.35 * tick_font}, fit_text(row.label, tick_font, longest_row_name),
             {tick_font, Anchor::end});
    draw_estimate(svg, row, x, y);
    svg.text({right + 12, y + 0.35 * tick_font}, row.note, {tick_font});
  }
  draw_x_axis(svg, x, box);
  return svg.finish();
}

}  // namespace coppice::study
