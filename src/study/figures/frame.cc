#include "study/figures/frame.h"

#include <algorithm>
#include <cstddef>
#include <numeric>

#include "study/figures/style.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double tick_length = 4;
constexpr double label_gap = 5;

std::size_t columns_for(const std::vector<LegendEntry>& entries, double width) {
  constexpr double gap = 16;
  const double fitting = (width + gap) / (widest_entry(entries) + gap);
  const auto most = static_cast<std::size_t>(std::max(fitting, 1.0));
  return std::clamp<std::size_t>(most, 1, std::max<std::size_t>(entries.size(), 1));
}

}  // namespace

double x_axis_height(const std::string& label) {
  return tick_length + tick_font + 8 + (label.empty() ? 0 : label_font + 7);
}

double y_axis_width(const Axis& axis) {
  return tick_length + label_gap + axis.label_width() +
         (axis.label().empty() ? 4 : label_font + 12);
}

void draw_x_axis(Svg& svg, const Axis& axis, const Box& plot, bool with_labels) {
  const Stroke thin = {ink, axis_width};
  svg.line({plot.left, plot.bottom}, {plot.right, plot.bottom}, thin);
  for (const Tick& tick : axis.ticks()) {
    const double x = axis.at(tick.value);
    svg.line({x, plot.bottom}, {x, plot.bottom + tick_length}, thin);
    if (!with_labels) continue;
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
    if (with_grid && y < plot.bottom - 1) {
      svg.line({plot.left, y}, {plot.right, y}, {grid_ink, 0.7});
    }
    svg.line({plot.left - tick_length, y}, {plot.left, y}, thin);
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

double widest_entry(const std::vector<LegendEntry>& entries) {
  double widest = 0;
  for (const LegendEntry& entry : entries) {
    widest = std::max(widest, legend_key + text_width(entry.name, tick_font));
  }
  return widest;
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

// Least squares under "each at least a gap below the one before": with the gaps taken out this is
// isotonic regression, solved by pooling neighbours that are out of order into their mean.
std::vector<double> spread_labels(const std::vector<double>& wanted, double gap, double top,
                                  double bottom) {
  std::vector<std::size_t> order(wanted.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order,
                           [&](std::size_t a, std::size_t b) { return wanted[a] < wanted[b]; });
  struct Pool {
    double sum;
    double count;
  };
  std::vector<Pool> pools;
  for (std::size_t i = 0; i < order.size(); ++i) {
    pools.push_back({wanted[order[i]] - gap * static_cast<double>(i), 1});
    while (pools.size() > 1) {
      const Pool last = pools.back();
      Pool& before = pools[pools.size() - 2];
      if (before.sum / before.count < last.sum / last.count) break;
      before.sum += last.sum;
      before.count += last.count;
      pools.pop_back();
    }
  }
  // Clamping what isotonic regression found is the best answer within bounds, too.
  const double room = bottom - gap * static_cast<double>(wanted.empty() ? 0 : wanted.size() - 1);
  std::vector<double> placed(wanted.size());
  std::size_t i = 0;
  for (const Pool& pool : pools) {
    const double mean = pool.sum / pool.count;
    for (double n = 0; n < pool.count; ++n, ++i) {
      placed[order[i]] = std::max(std::min(mean, room), top) + gap * static_cast<double>(i);
    }
  }
  return placed;
}

}  // namespace coppice::study
