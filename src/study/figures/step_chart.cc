#include "study/figures/step_chart.h"

#include <algorithm>
#include <cmath>

#include "study/figures/axis.h"
#include "study/figures/frame.h"
#include "study/figures/legend.h"
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

Mean mean_of(const StepTrace& trace) {
  double sum = 0, count = 0;
  for (const double v : trace.values) {
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
    for (const StepPanel& panel : chart.panels) {
      for (const StepTrace& trace : panel.traces) steps_ = std::max(steps_, trace.values.size());
    }
  }

  std::string draw();

 private:
  static SeriesStyle style_of(const StepPanel& panel, std::size_t trace) {
    return series_style(panel.traces[trace].style.value_or(trace));
  }
  Axis y_axis(const StepPanel& panel, double bottom, double top) const;
  void draw_panel(Svg& svg, const StepPanel& panel, const Axis& x, const Box& plot) const;
  void draw_trace(Svg& svg, const StepPanel& panel, std::size_t trace, const Axis& x,
                  const Axis& y) const;

  const StepChart& chart_;
  std::size_t steps_ = 0;
};

Axis StepPlot::y_axis(const StepPanel& panel, double bottom, double top) const {
  DataRange range(Scale::linear);
  for (const StepTrace& trace : panel.traces) {
    for (const double v : trace.values) range.include(v);
  }
  AxisSpec spec = {panel.y_label};
  spec.whole = true;
  if (range.empty() || range.low() >= 0) spec.low = 0;
  return Axis(spec, range, AxisSide::vertical, bottom, top, tick_font);
}

std::string StepPlot::draw() {
  const auto count = static_cast<double>(chart_.panels.size());
  const double top = picture_margin + title_height(chart_.title);
  const double pitch = chart_.panel_height + panel_gap;
  const double bottom = top + std::max(count * pitch - panel_gap, 40.0);

  double left = 0, right_room = 0;
  std::vector<LegendEntry> entries;
  for (const StepPanel& panel : chart_.panels) {
    left = std::max(left, 4 + y_axis_width(y_axis(panel, chart_.panel_height, 0)));
    for (std::size_t i = 0; i < panel.traces.size(); ++i) {
      right_room = std::max(right_room, text_width(mean_of(panel.traces[i]).text, tick_font));
      LegendEntry entry = {panel.traces[i].name, style_of(panel, i)};
      entry.style.marker = Marker::none;
      const bool known = std::any_of(entries.begin(), entries.end(), [&](const LegendEntry& e) {
        return e.name == entry.name && e.style.colour == entry.style.colour;
      });
      if (panel.traces.size() > 1 && !known) entries.push_back(entry);
    }
  }
  const double right = chart_.width - right_room - 2 * name_gap;
  AxisSpec steps = {chart_.x_label};
  steps.whole = true;
  steps.low = 0.5;
  steps.high = std::max(static_cast<double>(steps_), 1.0) + 0.5;
  const Axis x(steps, DataRange(Scale::linear), AxisSide::horizontal, left, right, tick_font);

  double height = bottom + x_axis_height(chart_.x_label) + 4;
  const double legend_top = height;
  if (!entries.empty()) height += legend_height(entries, right - left) + 8;
  Svg svg(chart_.width, height, chart_.title.empty() ? "steps of one generation" : chart_.title);
  draw_title(svg, chart_.title, chart_.width);
  for (std::size_t i = 0; i < chart_.panels.size(); ++i) {
    const double panel_top = top + pitch * static_cast<double>(i);
    const Box plot = {left, panel_top, right, panel_top + chart_.panel_height};
    draw_panel(svg, chart_.panels[i], x, plot);
    draw_x_axis(svg, x, plot, i + 1 == chart_.panels.size());
  }
  if (!entries.empty()) draw_legend(svg, entries, {left, legend_top}, right - left);
  return svg.finish();
}

void StepPlot::draw_panel(Svg& svg, const StepPanel& panel, const Axis& x, const Box& plot) const {
  const Axis y = y_axis(panel, plot.bottom, plot.top);
  draw_y_axis(svg, y, plot, true, plot.left - 4);
  std::vector<double> wanted;
  std::vector<std::size_t> with_mean;
  for (std::size_t i = 0; i < panel.traces.size(); ++i) {
    draw_trace(svg, panel, i, x, y);
    const Mean mean = mean_of(panel.traces[i]);
    if (std::isnan(mean.value)) continue;
    svg.line({plot.left, y.at(mean.value)}, {plot.right, y.at(mean.value)},
             {panel.traces.size() == 1 ? ink : style_of(panel, i).colour, 1, "5 3"});
    wanted.push_back(y.at(mean.value));
    with_mean.push_back(i);
  }
  if (with_mean.empty()) draw_no_data(svg, plot);
  const std::vector<double> placed = spread_labels(wanted, tick_font + 2, plot.top, plot.bottom);
  for (std::size_t k = 0; k < placed.size(); ++k) {
    svg.text({plot.right + name_gap, placed[k] + 0.35 * tick_font},
             mean_of(panel.traces[with_mean[k]]).text, {tick_font});
  }
}

void StepPlot::draw_trace(Svg& svg, const StepPanel& panel, std::size_t trace, const Axis& x,
                          const Axis& y) const {
  const SeriesStyle style = style_of(panel, trace);
  const double pixels = std::max(x.pixel_high() - x.pixel_low(), 1.0);
  const auto size = static_cast<std::size_t>(
      std::ceil(static_cast<double>(std::max<std::size_t>(steps_, 1)) / pixels));
  for (const auto& run : buckets(panel.traces[trace].values, size)) {
    if (run.empty()) continue;
    std::vector<Xy> stairs, upper, lower;
    for (const Bucket& bucket : run) {
      for (const double step : {bucket.first - 0.5, bucket.last + 0.5}) {
        stairs.push_back({x.at(step), y.at(bucket.mean)});
        upper.push_back({x.at(step), y.at(bucket.high)});
        lower.push_back({x.at(step), y.at(bucket.low)});
      }
    }
    // The area down to zero where one trace stands alone, the range where steps share pixels.
    std::vector<Xy> area = size > 1 ? upper : stairs;
    if (size > 1) {
      area.insert(area.end(), lower.rbegin(), lower.rend());
    } else {
      const double ground = y.clamped_at(0);
      area.push_back({area.back().x, ground});
      area.push_back({area.front().x, ground});
    }
    if (size > 1 || panel.traces.size() == 1)
      svg.polygon(area, style.colour, size > 1 ? 0.25 : 0.15);
    svg.polyline(stairs, {style.colour, 1.1, style.dash});
  }
}

}  // namespace

std::string to_svg(const StepChart& chart) { return StepPlot(chart).draw(); }

}  // namespace coppice::study
