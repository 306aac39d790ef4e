#include "study/figures/frame.h"

#include "study/figures/style.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double tick_length = 4;
constexpr double minor_length = 2.5;
constexpr double label_gap = 5;

}  // namespace

double title_height(const std::string& title) { return title.empty() ? 0 : title_font + 10; }

double x_axis_height(const std::string& label) {
  return tick_length + tick_font + 8 + (label.empty() ? 0 : label_font + 7);
}

double y_axis_width(const Axis& axis) {
  return tick_length + label_gap + axis.label_width() +
         (axis.label().empty() ? 4 : label_font + 12);
}

void draw_title(Svg& svg, const std::string& title, double width) {
  if (title.empty()) return;
  svg.open_group(title);
  svg.text({width / 2, title_font + 4}, fit_text(title, title_font, 0.92 * width),
           {title_font, Anchor::middle, ink, true});
  svg.close();
}

void draw_x_axis(Svg& svg, const Axis& axis, const Box& plot, bool with_labels) {
  const Stroke thin = {ink, axis_width};
  svg.line({plot.left, plot.bottom}, {plot.right, plot.bottom}, thin);
  for (const Tick& tick : axis.ticks()) {
    const double x = axis.at(tick.value);
    const double length = tick.label.empty() ? minor_length : tick_length;
    svg.line({x, plot.bottom}, {x, plot.bottom + length}, thin);
    if (tick.label.empty() || !with_labels) continue;
    svg.text({x, plot.bottom + tick_length + tick_font + 2}, tick.label,
             {tick_font, Anchor::middle, ink});
  }
  if (!with_labels || axis.label().empty()) return;
  svg.text({(plot.left + plot.right) / 2, plot.bottom + x_axis_height(axis.label()) - 4},
           fit_text(axis.label(), label_font, plot.width() + 60),
           {label_font, Anchor::middle, ink});
}

void draw_y_axis(Svg& svg, const Axis& axis, const Box& plot, bool with_grid, double width) {
  const Stroke thin = {ink, axis_width};
  for (const Tick& tick : axis.ticks()) {
    const double y = axis.at(tick.value);
    if (with_grid && !tick.label.empty() && y < plot.bottom - 1) {
      svg.line({plot.left, y}, {plot.right, y}, {grid_ink, 0.7});
    }
    const double length = tick.label.empty() ? minor_length : tick_length;
    svg.line({plot.left - length, y}, {plot.left, y}, thin);
    if (tick.label.empty()) continue;
    svg.text({plot.left - tick_length - label_gap + 1, y + 0.35 * tick_font}, tick.label,
             {tick_font, Anchor::end, ink});
  }
  svg.line({plot.left, plot.top}, {plot.left, plot.bottom}, thin);
  if (axis.label().empty()) return;
  svg.text({plot.left - width + label_font, (plot.top + plot.bottom) / 2},
           fit_text(axis.label(), label_font, plot.height() + 30),
           {label_font, Anchor::middle, ink, false, true});
}

void draw_no_data(Svg& svg, const Box& plot) {
  svg.text({(plot.left + plot.right) / 2, (plot.top + plot.bottom) / 2}, "no data",
           {label_font, Anchor::middle, soft_ink});
}

}  // namespace coppice::study
