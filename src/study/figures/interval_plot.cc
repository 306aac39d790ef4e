#include <algorithm>
#include <cmath>
#include <cstddef>

#include "study/figures/charts.h"
#include "study/figures/frame.h"
#include "study/figures/style.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double row_pitch = 20;
constexpr double longest_label = 260;
constexpr double row_inset = 8;

bool opens_group(const IntervalPlot& plot, std::size_t row) {
  const std::string& group = plot.rows[row].group;
  return !group.empty() && (row == 0 || group != plot.rows[row - 1].group);
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

std::string to_svg(const IntervalPlot& plot) {
  double label_width = 0, note_width = 0, rows_height = 0;
  DataRange range(plot.x.scale);
  range.include(plot.none);
  for (std::size_t i = 0; i < plot.rows.size(); ++i) {
    const IntervalRow& row = plot.rows[i];
    label_width = std::max(label_width, std::min(text_width(row.label, tick_font), longest_label));
    label_width = std::max(label_width, std::min(text_width(row.group, tick_font), longest_label));
    note_width = std::max(note_width, text_width(row.note, tick_font));
    for (const double value : {row.value, row.low, row.high}) range.include(value);
    rows_height += row_pitch + (opens_group(plot, i) ? row_pitch : 0);
  }
  if (plot.rows.empty()) rows_height = 3 * row_pitch;
  const double left = picture_margin + label_width + 14;
  const double right = std::max(plot.width - picture_margin - note_width - 12, left + 60);
  const double top = picture_margin;
  const Box box = {left, top, right, top + rows_height + 4};
  const Axis x(plot.x, range, AxisSide::horizontal, left + row_inset, right - row_inset, tick_font);

  Svg svg(std::max(plot.width, right + note_width + 12 + picture_margin),
          box.bottom + x_axis_height(plot.x.label) + 4, plot.x.label);
  for (const Tick& tick : x.ticks()) {
    if (tick.label.empty()) continue;
    svg.line({x.at(tick.value), box.top}, {x.at(tick.value), box.bottom}, {grid_ink, 0.7});
  }
  const SeriesStyle none = reference_style();
  if (x.covers(plot.none)) {
    svg.line({x.at(plot.none), box.top}, {x.at(plot.none), box.bottom},
             {none.colour, 1.3, none.dash});
  }
  double y = box.top + row_pitch / 2;
  for (std::size_t i = 0; i < plot.rows.size(); ++i) {
    const IntervalRow& row = plot.rows[i];
    if (opens_group(plot, i)) {
      svg.text({picture_margin, y + 0.35 * tick_font},
               fit_text(row.group, tick_font, longest_label), {.size = tick_font, .bold = true});
      y += row_pitch;
    }
    svg.text({left - 10, y + 0.35 * tick_font}, fit_text(row.label, tick_font, longest_label),
             {tick_font, Anchor::end});
    draw_estimate(svg, row, x, y);
    svg.text({right + 12, y + 0.35 * tick_font}, row.note, {tick_font});
    y += row_pitch;
  }
  draw_x_axis(svg, x, box);
  if (plot.rows.empty()) draw_no_data(svg, box);
  return svg.finish();
}

}  // namespace coppice::study
