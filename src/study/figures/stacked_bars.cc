#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>

#include "base/error.h"
#include "study/figures/axis.h"
#include "study/figures/charts.h"
#include "study/figures/frame.h"
#include "study/figures/style.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double thickness = 17;
constexpr double pitch = 22;
constexpr double group_gap = 9;
constexpr double longest_bar_name = 190;  // dyspec-threshold-plain fits

class BarPlot {
 public:
  explicit BarPlot(const StackedBars& chart) : chart_(chart) {
    for (std::size_t i = 0; i < chart.bars.size(); ++i) {
      const Bar& bar = chart.bars[i];
      if (bar.parts.size() > chart.parts.size()) {
        throw_usage(cat("stacked bars: bar ", quote(bar.group + " " + bar.label), " has ",
                        bar.parts.size(), " parts for ", chart.parts.size(),
                        " names; name every part"));
      }
      std::vector<double> parts = bar.parts;
      for (double& part : parts) {
        if (!std::isfinite(part) || part < 0) part = 0;
      }
      sums_.push_back(std::accumulate(parts.begin(), parts.end(), 0.0));
      parts_.push_back(std::move(parts));
    }
  }

  std::string draw() const;

 private:
  bool starts_group(std::size_t bar) const {
    return bar == 0 || chart_.bars[bar].group != chart_.bars[bar - 1].group;
  }
  void draw_bar(Svg& svg, std::size_t bar, const Axis& x, double top) const;

  const StackedBars& chart_;
  std::vector<std::vector<double>> parts_;  // [bars][parts], finite and not negative
  std::vector<double> sums_;
};

std::string BarPlot::draw() const {
  double group_width = 0, label_width = 0, note_width = 0, bars_height = 0;
  for (std::size_t i = 0; i < chart_.bars.size(); ++i) {
    const auto widen = [](double& width, const std::string& text) {
      width = std::max(width, std::min(text_width(text, tick_font), longest_bar_name));
    };
    widen(group_width, chart_.bars[i].group);
    widen(label_width, chart_.bars[i].label);
    widen(note_width, chart_.bars[i].note);
    bars_height += pitch + (i > 0 && starts_group(i) ? group_gap : 0);
  }
  if (chart_.bars.empty()) bars_height = 3 * pitch;

  std::vector<LegendEntry> entries;
  for (std::size_t p = 0; p < chart_.parts.size(); ++p) {
    entries.push_back({chart_.parts[p], {}, area_colour(p)});
  }
  const double left = picture_margin + group_width + (label_width > 0 ? label_width + 12 : 0) + 8;
  const double right =
      std::max(chart_.width - picture_margin - (note_width > 0 ? note_width + 8 : 8), left + 40);
  const double legend_top = picture_margin;
  const double legend_left = left - 12;
  const double top =
      legend_top + (entries.empty() ? 0 : legend_height(entries, right - legend_left) + 10);
  const Box plot = {left, top, right, top + bars_height + 2};

  AxisSpec spec = {chart_.value_label};
  spec.low = 0;
  spec.high = 1;
  spec.per_cent = true;
  const Axis x(spec, DataRange(spec.scale), AxisSide::horizontal, plot.left, plot.right, tick_font);

  Svg svg(chart_.width, plot.bottom + x_axis_height(chart_.value_label) + 4, chart_.value_label);
  if (!entries.empty()) {
    draw_legend(svg, entries, {legend_left, legend_top}, right - legend_left);
  }
  double bar_top = plot.top;
  for (std::size_t i = 0; i < chart_.bars.size(); ++i) {
    if (i > 0 && starts_group(i)) bar_top += group_gap;
    const double baseline = bar_top + thickness / 2 + 0.35 * tick_font;
    if (starts_group(i)) {
      svg.text({picture_margin, baseline},
               fit_text(chart_.bars[i].group, tick_font, longest_bar_name), {tick_font});
    }
    svg.text({left - 8, baseline}, fit_text(chart_.bars[i].label, tick_font, longest_bar_name),
             {tick_font, Anchor::end});
    draw_bar(svg, i, x, bar_top);
    bar_top += pitch;
  }
  draw_x_axis(svg, x, plot);
  if (chart_.bars.empty()) draw_no_data(svg, plot);
  return svg.finish();
}

void BarPlot::draw_bar(Svg& svg, std::size_t bar, const Axis& x, double top) const {
  double sum = 0, end = x.at(0);
  for (std::size_t p = 0; p < parts_[bar].size() && sums_[bar] > 0; ++p) {
    const double part = parts_[bar][p];
    const double start = end;
    sum += part;
    end = x.at(sum / sums_[bar]);
    if (part == 0) continue;
    const std::string fill = area_colour(p);
    const double share = 100 * part / sums_[bar];
    const std::string printed = fixed_number(share, 0) + "%";
    svg.open_group(chart_.parts[p] + ": " + compact_number(part) + " (" + fixed_number(share, 1) +
                   "%)");
    svg.rect({start, top, end, top + thickness}, fill);
    if (text_width(printed, tick_font - 1) + 6 <= end - start) {
      svg.text({(start + end) / 2, top + thickness / 2 + 0.35 * (tick_font - 1)}, printed,
               {tick_font - 1, Anchor::middle, ink_on(fill)});
    }
    svg.close();
  }
  svg.text({end + 6, top + thickness / 2 + 0.35 * tick_font},
           fit_text(chart_.bars[bar].note, tick_font, longest_bar_name), {tick_font});
}

}  // namespace

std::string to_svg(const StackedBars& chart) { return BarPlot(chart).draw(); }

}  // namespace coppice::study
