#include "study/figures/frame.h"

#include <algorithm>
#include <cstddef>

#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double tick_length = 4, tick_gap = 5;
constexpr double legend_key = 32;  // from the start of an entry's key to the start of its name
constexpr double legend_row = 18;

/// Width of the widest entry, its key included.
double widest_entry(const std::vector<LegendEntry>& entries) {
  double widest = 0;
  for (const LegendEntry& entry : entries) {
    widest = std::max(widest, legend_key + text_width(entry.name, tick_font));
  }
  return widest;
}

std::size_t columns_for(const std::vector<LegendEntry>& entries, double width) {
  constexpr double gap = 16;
  const double fitting = (width + gap) / (widest_entry(entries) + gap);
  const auto most = static_cast<std::size_t>(std::max(fitting, 1.0));
  return std::clamp<std::size_t>(most, 1, std::max<std::size_t>(entries.size(), 1));
}

/// With the middle of its line at `at.y`.
void draw_entry(Svg& svg, const LegendEntry& entry, Xy at, double max_width) {
  const std::string shown = fit_text(entry.name, tick_font, max_width - legend_key);
  svg.open_group(shown == entry.name ? "" : entry.name);
  if (!entry.fill.empty()) {
    svg.rect({at.x + 12, at.y - 6, at.x + 26, at.y + 6}, entry.fill);
  } else {
    svg.line({at.x, at.y}, {at.x + 26, at.y}, {entry.style.colour, line_width, entry.style.dash});
    draw_marker(svg, entry.style, {at.x + 13, at.y});
  }
  svg.text({at.x + legend_key, at.y + 0.35 * tick_font}, shown, {tick_font});
  svg.close();
}

}  // namespace

double x_axis_height(const std::string& label) {
  return tick_length + tick_font + 8 + (label.empty() ? 0 : label_font + 7);
}

double y_axis_width(const Axis& axis) {
  return 4 + tick_length + tick_gap + axis.label_width() +
         (axis.spec().label.empty() ? 4 : label_font + 12);
}

void draw_x_axis(Svg& svg, const Axis& axis, const Box& plot) {
  const Stroke thin = {ink, axis_width};
  const std::string& label = axis.spec().label;
  svg.line({plot.left, plot.bottom}, {plot.right, plot.bottom}, thin);
  for (const Tick& tick : axis.ticks()) {
    const double x = axis.at(tick.value);
    if (!axis.has_names()) svg.line({x, plot.bottom}, {x, plot.bottom + tick_length}, thin);
    svg.text({x, plot.bottom + tick_length + tick_font + 2}, tick.label,
             {tick_font, Anchor::middle});
  }
  if (label.empty()) return;
  svg.text({(plot.left + plot.right) / 2, plot.bottom + x_axis_height(label) - 4},
           fit_text(label, label_font, plot.width() + 60), {label_font, Anchor::middle});
}

void draw_y_axis(Svg& svg, const Axis& axis, const Box& plot) {
  const Stroke thin = {ink, axis_width};
  const std::string& label = axis.spec().label;
  for (const Tick& tick : axis.ticks()) {
    const double y = axis.at(tick.value);
    if (!axis.has_names()) svg.line({plot.left - tick_length, y}, {plot.left, y}, thin);
    svg.text({plot.left - tick_length - tick_gap + 1, y + 0.35 * tick_font}, tick.label,
             {tick_font, Anchor::end});
  }
  svg.line({plot.left, plot.top}, {plot.left, plot.bottom}, thin);
  if (label.empty()) return;
  svg.text({plot.left - y_axis_width(axis) + label_font + 4, (plot.top + plot.bottom) / 2},
           fit_text(label, label_font, plot.height() + 30),
           {label_font, Anchor::middle, ink, true});
}

void draw_grid(Svg& svg, const Axis& y, const Box& plot) {
  for (const Tick& tick : y.ticks()) {
    const double at = y.at(tick.value);
    if (at < plot.bottom - 1) svg.line({plot.left, at}, {plot.right, at}, {grid_ink, 0.7});
  }
}

double legend_height(const std::vector<LegendEntry>& entries, double width) {
  const std::size_t columns = columns_for(entries, width);
  return legend_row * static_cast<double>((entries.size() + columns - 1) / columns);
}

void draw_legend(Svg& svg, const std::vector<LegendEntry>& entries, Xy top_left, double width) {
  const std::size_t columns = columns_for(entries, width);
  const double pitch = std::min(width / static_cast<double>(columns), widest_entry(entries) + 16);
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const double x = top_left.x + pitch * static_cast<double>(i % columns);
    const double y = top_left.y + legend_row * (static_cast<double>(i / columns) + 0.5);
    draw_entry(svg, entries[i], {x, y}, columns == 1 ? width : pitch);
  }
}

}  // namespace coppice::study
