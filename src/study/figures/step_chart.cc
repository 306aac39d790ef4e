#include <algorithm>
#include <cmath>

#include "study/figures/axis.h"
#include "study/figures/charts.h"
#include "study/figures/frame.h"
#include "study/figures/style.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double panel_gap = 16;
constexpr double name_gap = 6;

struct Mean {
  double value;  // NaN: no steps
  std::string text;
};

Mean mean_of(const StepPanel& panel) {
  double sum = 0, count = 0;
  for (const double v : panel.values) {
    if (!std::isfinite(v)) continue;
    sum += v;
    ++count;
  }
  if (count == 0) return {std::nan(""), ""};
  return {sum / count, "mean " + compact_number(sum / count)};
}

// Neighbouring steps that share a column of pixels.
struct Bucket {
  double first, last;  // steps, from 1
  double low, mean, high;
};

// Runs of buckets of `size` steps, parted where a bucket has no value.
std::vector<std::vector<Bucket>> buckets(const std::vector<double>& values, std::size_t size) {
  std::vector<std::vector<Bucket>> runs(1);
  for (std::size_t start = 0; start < values.size(); start += size) {
    const std::size_t end = std::min(start + size, values.size());
    Bucket bucket = {static_cast<double>(start + 1), static_cast<double>(end), 0, 0, 0};
    double count = 0;
    for (std::size_t i = start; i < end; ++i) {
      const double v = values[i];
      if (!std::isfinite(v)) continue;
      bucket.low = count == 0 ? v : std::min(bucket.low, v);
      bucket.high = count == 0 ? v : std::max(bucket.high, v);
      bucket.mean += v;
      ++count;
    }
    bucket.mean /= std::max(count, 1.0);
    if (count > 0) runs.back().push_back(bucket);
    if (count == 0 && !runs.back().empty()) runs.emplace_back();
  }
  return runs;
}

class StepPlot {
 public:
  explicit StepPlot(const StepChart& chart) : chart_(chart) {
    for (const StepPanel& panel : chart.panels) steps_ = std::max(steps_, panel.values.size());
  }

  std::string draw();

 private:
  Axis y_axis(const StepPanel& panel, double bottom, double top) const;
  void draw_panel(Svg& svg, const StepPanel& panel, const Axis& x, const Box& plot) const;
  void draw_trace(Svg& svg, const StepPanel& panel, const Axis& x, const Axis& y) const;

  const StepChart& chart_;
  std::size_t steps_ = 0;
};

Axis StepPlot::y_axis(const StepPanel& panel, double bottom, double top) const {
  DataRange range(Scale::linear);
  for (const double v : panel.values) range.include(v);
  AxisSpec spec = {panel.y_label};
  spec.whole = true;
  if (range.empty() || range.low() >= 0) spec.low = 0;
  return Axis(spec, range, AxisSide::vertical, bottom, top, tick_font);
}

std::string StepPlot::draw() {
  const auto count = static_cast<double>(chart_.panels.size());
  const double top = picture_margin;
  const double pitch = chart_.panel_height + panel_gap;
  const double bottom = top + std::max(count * pitch - panel_gap, 40.0);

  double left = 0, right_room = 0;
  for (const StepPanel& panel : chart_.panels) {
    left = std::max(left, 4 + y_axis_width(y_axis(panel, chart_.panel_height, 0)));
    right_room = std::max(right_room, text_width(mean_of(panel).text, tick_font));
  }
  const double right = chart_.width - right_room - 2 * name_gap;
  AxisSpec steps = {chart_.x_label};
  steps.whole = true;
  steps.low = 0.5;
  steps.high = std::max(static_cast<double>(steps_), 1.0) + 0.5;
  const Axis x(steps, DataRange(Scale::linear), AxisSide::horizontal, left, right, tick_font);

  Svg svg(chart_.width, bottom + x_axis_height(chart_.x_label) + 4, "steps of one generation");
  for (std::size_t i = 0; i < chart_.panels.size(); ++i) {
    const double panel_top = top + pitch * static_cast<double>(i);
    const Box plot = {left, panel_top, right, panel_top + chart_.panel_height};
    draw_panel(svg, chart_.panels[i], x, plot);
    draw_x_axis(svg, x, plot, i + 1 == chart_.panels.size());
  }
  return svg.finish();
}

void StepPlot::draw_panel(Svg& svg, const StepPanel& panel, const Axis& x, const Box& plot) const {
  const Axis y = y_axis(panel, plot.bottom, plot.top);
  draw_y_axis(svg, y, plot, true, plot.left - 4);
  draw_trace(svg, panel, x, y);
  const Mean mean = mean_of(panel);
  if (std::isnan(mean.value)) {
    draw_no_data(svg, plot);
    return;
  }
  const double height = y.at(mean.value);
  svg.line({plot.left, height}, {plot.right, height}, {ink, 1, "5 3"});
  svg.text({plot.right + name_gap, height + 0.35 * tick_font}, mean.text, {tick_font});
}

void StepPlot::draw_trace(Svg& svg, const StepPanel& panel, const Axis& x, const Axis& y) const {
  const SeriesStyle style = series_style(panel.style);
  const double pixels = std::max(x.pixel_high() - x.pixel_low(), 1.0);
  const auto size = static_cast<std::size_t>(
      std::ceil(static_cast<double>(std::max<std::size_t>(steps_, 1)) / pixels));
  for (const auto& run : buckets(panel.values, size)) {
    if (run.empty()) continue;
    std::vector<Xy> stairs, upper, lower;
    for (const Bucket& bucket : run) {
      for (const double step : {bucket.first - 0.5, bucket.last + 0.5}) {
        stairs.push_back({x.at(step), y.at(bucket.mean)});
        upper.push_back({x.at(step), y.at(bucket.high)});
        lower.push_back({x.at(step), y.at(bucket.low)});
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
}

}  // namespace

std::string to_svg(const StepChart& chart) { return StepPlot(chart).draw(); }

}  // namespace coppice::study
