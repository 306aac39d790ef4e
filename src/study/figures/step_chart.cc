#include <algorithm>
#include <cmath>

#include "study/figures/charts.h"
#include "study/figures/frame.h"
#include "study/figures/style.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double panel_height = 150;
constexpr double panel_gap = 16, name_gap = 6;
constexpr const char* step_label = "step";

// NaN without steps.
double mean_of(const StepPanel& panel) {
  double sum = 0;
  for (const double v : panel.values) sum += v;
  return sum / static_cast<double>(panel.values.size());
}

std::string mean_text(const StepPanel& panel) {
  return panel.values.empty() ? "" : "mean " + compact_number(mean_of(panel));
}

Axis y_axis(const StepPanel& panel, double bottom, double top) {
  DataRange range(Scale::linear);
  for (const double v : panel.values) range.include(v);
  return Axis({.label = panel.y_label, .low = 0, .whole = true}, range, AxisSide::vertical, bottom,
              top);
}

// A step's corners; where several share a column of pixels, one for all of them, with their range.
void draw_trace(Svg& svg, const StepPanel& panel, const Axis& x, const Axis& y, std::size_t size) {
  const SeriesStyle style = series_style(panel.style);
  std::vector<Xy> stairs, upper, lower;
  for (std::size_t start = 0; start < panel.values.size(); start += size) {
    const std::size_t end = std::min(start + size, panel.values.size());
    double low = panel.values[start], high = low, mean = 0;
    for (std::size_t i = start; i < end; ++i) {
      low = std::min(low, panel.values[i]);
      high = std::max(high, panel.values[i]);
      mean += panel.values[i];
    }
    mean /= static_cast<double>(end - start);
    for (const double step : {static_cast<double>(start) + 0.5, static_cast<double>(end) + 0.5}) {
      stairs.push_back({x.at(step), y.at(mean)});
      upper.push_back({x.at(step), y.at(high)});
      lower.push_back({x.at(step), y.at(low)});
    }
  }
  // The area down to zero, or the range if steps share pixels.
  std::vector<Xy> area = size > 1 ? upper : stairs;
  if (size > 1) {
    area.insert(area.end(), lower.rbegin(), lower.rend());
  } else {
    const double ground = y.clamped_at(0);
    area.push_back({area.back().x, ground});
    area.push_back({area.front().x, ground});
  }
  svg.polygon(area, style.colour, size > 1 ? 0.25 : 0.15);
  svg.polyline(stairs, {style.colour, 1.1, style.dash});
}

void draw_panel(Svg& svg, const StepPanel& panel, const Axis& x, const Box& plot,
                std::size_t bucket) {
  const Axis y = y_axis(panel, plot.bottom, plot.top);
  draw_y_axis(svg, y, plot, true, plot.left - 4);
  if (panel.values.empty()) {
    draw_no_data(svg, plot);
    return;
  }
  draw_trace(svg, panel, x, y, bucket);
  const double height = y.at(mean_of(panel));
  svg.line({plot.left, height}, {plot.right, height}, {ink, 1, "5 3"});
  svg.text({plot.right + name_gap, height + 0.35 * tick_font}, mean_text(panel), {tick_font});
}

}  // namespace

std::string to_svg(const StepChart& chart) {
  constexpr double pitch = panel_height + panel_gap;
  const double top = picture_margin;
  const double bottom = top + static_cast<double>(chart.panels.size()) * pitch - panel_gap;
  double left = 0, right_room = 0;
  std::size_t steps = 1;
  for (const StepPanel& panel : chart.panels) {
    left = std::max(left, 4 + y_axis_width(y_axis(panel, panel_height, 0)));
    right_room = std::max(right_room, text_width(mean_text(panel), tick_font));
    steps = std::max(steps, panel.values.size());
  }
  const double right = chart_width - right_room - 2 * name_gap;
  const AxisSpec spec = {
      .label = step_label, .low = 0.5, .high = static_cast<double>(steps) + 0.5, .whole = true};
  const Axis x(spec, DataRange(Scale::linear), AxisSide::horizontal, left, right);
  const auto bucket =
      static_cast<std::size_t>(std::ceil(static_cast<double>(steps) / (right - left)));

  Svg svg(chart_width, bottom + x_axis_height(step_label) + 4, "steps of one generation");
  for (std::size_t i = 0; i < chart.panels.size(); ++i) {
    const double panel_top = top + pitch * static_cast<double>(i);
    const Box plot = {left, panel_top, right, panel_top + panel_height};
    draw_panel(svg, chart.panels[i], x, plot, bucket);
    draw_x_axis(svg, x, plot, i + 1 == chart.panels.size());
  }
  return svg.finish();
}

}  // namespace coppice::study
