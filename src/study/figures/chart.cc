#include "study/figures/chart.h"

#include <algorithm>
#include <cmath>

#include "study/figures/frame.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double picture_width = 620, plot_height = 310;
constexpr double row_pitch = 24, least_height = 120;  // of an axis of names
constexpr double inset = 24;  // pixels between the ends of the x axis and its outermost points
constexpr double gap = 14;    // between the plot and what stands right of it
constexpr double colour_bar_width = 14;
constexpr double cap = 3;          // half the width of an interval's ends
constexpr double marker_room = 5;  // between a marker's middle and its star

/// A point where it is drawn.
struct Spot {
  Xy at;
  const Point* point;
};

/// A series as it is drawn: runs of points that can be shown, parted by the others.
struct Line {
  const Series* series;
  SeriesStyle style;
  std::vector<std::vector<Spot>> runs = {};

  void for_each_spot(const auto& visit) const {
    for (const auto& run : runs) {
      for (const Spot& spot : run) visit(spot);
    }
  }
};

bool is_shown(const Chart& chart, const Point& point) {
  return can_show(chart.x.scale, point.x) && can_show(chart.y.scale, point.y);
}

bool has_interval(const Point& point) {
  return std::isfinite(point.low) && std::isfinite(point.high);
}

struct Ranges {
  DataRange x, y;
};

Ranges ranges_of(const Chart& chart) {
  DataRange x(chart.x.scale), y(chart.y.scale);
  for (const Series& series : chart.series) {
    for (const Point& point : series.points) {
      if (!is_shown(chart, point)) continue;
      x.include(point.x);
      for (const double value : {point.y, point.low, point.high}) y.include(value);
    }
  }
  for (const Tile& tile : chart.tiles) {
    x.include(tile.left), x.include(tile.right);
    y.include(tile.low), y.include(tile.high);
  }
  for (const ReferenceLine& reference : chart.references) {
    if (reference.at) y.include(*reference.at);
  }
  // Room around the outermost points, but none beyond 0: what cannot be negative stays so.
  if (chart.tiles.empty() && chart.y.scale == Scale::linear && !y.empty()) {
    const double low = y.low(), high = y.high();
    const double room = 0.03 * (high - low);
    y.include(low >= 0 ? std::max(low - room, 0.0) : low - room);
    y.include(high <= 0 ? std::min(high + room, 0.0) : high + room);
  }
  return {x, y};
}

std::vector<Line> lines_of(const Chart& chart, const Axis& x, const Axis& y) {
  std::vector<Line> lines;
  for (const Series& series : chart.series) {
    Line line = {&series, series.style ? *series.style : series_style(lines.size())};
    bool joined = false;
    for (const Point& point : series.points) {
      const bool shown = is_shown(chart, point);
      if (shown && !joined) line.runs.emplace_back();
      if (shown) line.runs.back().push_back({{x.at(point.x), y.at(point.y)}, &point});
      joined = shown;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

/// Moves apart what has markers at one x, or nearly so, in the order of the series.
void put_side_by_side(std::vector<Line>& lines) {
  constexpr double one_place = 4, step = 6;  // pixels
  std::vector<Line> shifted = lines;
  for (std::size_t own = 0; own < lines.size(); ++own) {
    for (auto& run : shifted[own].runs) {
      for (Spot& spot : run) {
        const double place = spot.at.x;
        double before = 0, all = 0;
        for (std::size_t other = 0; other < lines.size(); ++other) {
          bool meets = false;
          lines[other].for_each_spot(
              [&](const Spot& one) { meets = meets || std::abs(one.at.x - place) <= one_place; });
          if (!meets) continue;
          ++all;
          if (other < own) ++before;
        }
        spot.at.x += step * (before - (all - 1) / 2);
      }
    }
  }
  lines = std::move(shifted);
}

std::vector<LegendEntry> entries_of(const Chart& chart, const std::vector<Line>& lines) {
  std::vector<LegendEntry> entries = chart.legend;
  for (const Line& line : lines) {
    if (!line.series->name.empty()) entries.push_back({line.series->name, line.style});
  }
  for (const ReferenceLine& reference : chart.references) {
    if (!reference.label.empty()) entries.push_back({reference.label, reference_style()});
  }
  return entries;
}

void draw_reference(Svg& svg, const ReferenceLine& reference, const Axis& x, const Axis& y,
                    const Box& plot) {
  const SeriesStyle style = reference_style();
  const Stroke stroke = {style.colour, 1.2, style.dash};
  if (reference.at) {
    svg.line({plot.left, y.at(*reference.at)}, {plot.right, y.at(*reference.at)}, stroke);
    return;
  }
  // Straight where both axes have one scale, as those have that are compared so.
  const double low = std::max(x.low(), y.low()), high = std::min(x.high(), y.high());
  if (low < high) svg.line({x.at(low), y.at(low)}, {x.at(high), y.at(high)}, stroke);
}

/// Maps the tiles' values to colours, within limits.
class Colours {
 public:
  Colours(const AxisSpec& spec, const std::vector<Tile>& tiles, double bottom, double top)
      : axis_(spec, range_of(tiles), AxisSide::vertical, bottom, top) {}

  /// Width of the bar with its ticks and label.
  double width() const {
    return colour_bar_width + 12 + axis_.label_width() +
           (axis_.spec().label.empty() ? 0 : label_font + 8);
  }
  std::string at(double value) const {
    const double inside = std::clamp(value, axis_.low(), axis_.high());
    return heat_colour((inside - axis_.low()) / (axis_.high() - axis_.low()));
  }
  void draw(Svg& svg, double left) const {
    const double bottom = axis_.at(axis_.low()), top = axis_.at(axis_.high());
    const double right = left + colour_bar_width;
    constexpr int slices = 64;
    // Each slice reaches down to the end under the next ones, so that no seams show.
    for (int i = slices - 1; i >= 0; --i) {
      const double high = bottom + (top - bottom) * (i + 1) / slices;
      svg.rect({left, high, right, bottom}, heat_colour((i + 0.5) / slices));
    }
    svg.rect({left, top, right, bottom}, "none", {rule_ink, 0.7});
    for (const Tick& tick : axis_.ticks()) {
      const double y = axis_.at(tick.value);
      svg.line({right, y}, {right + 4, y}, {ink, axis_width});
      svg.text({right + 7, y + 0.35 * tick_font}, tick.label, {tick_font});
    }
    if (axis_.spec().label.empty()) return;
    svg.text({left + width() - 4, (top + bottom) / 2}, axis_.spec().label,
             {label_font, Anchor::middle, ink, true});
  }

 private:
  static DataRange range_of(const std::vector<Tile>& tiles) {
    DataRange range(Scale::linear);
    for (const Tile& tile : tiles) range.include(tile.value);
    return range;
  }

  Axis axis_;
};

void draw_tile(Svg& svg, const Tile& tile, const std::optional<Colours>& colours, const Axis& x,
               const Axis& y) {
  const std::string fill = tile.fill.empty() ? colours->at(tile.value) : std::string(tile.fill);
  const double one = y.at(tile.low), other = y.at(tile.high);
  Box box = {x.at(tile.left), std::min(one, other), x.at(tile.right), std::max(one, other)};
  if (!colours) {  // bars, parted from their neighbours
    box.top += 3;
    box.bottom -= 3;
  }
  svg.open_group(tile.tooltip);
  // A hairline of the same colour closes the seams that smoothing leaves between tiles; those
  // with words are parted instead.
  const bool print = !tile.words.empty() && box.height() >= tick_font + 4 &&
                     text_width(tile.words, tick_font) + 4 <= box.width();
  svg.rect(box, fill, !colours ? Stroke{} : print ? Stroke{paper, 1} : Stroke{fill, 0.4});
  if (print) {
    svg.text({(box.left + box.right) / 2, (box.top + box.bottom) / 2 + 0.35 * tick_font},
             tile.words, {tick_font, Anchor::middle, ink_on(fill)});
  }
  svg.close();
}

void draw_interval(Svg& svg, const Line& line, const Spot& spot, const Axis& y) {
  const Point& point = *spot.point;
  if (!has_interval(point)) return;
  const Stroke thin = {line.style.colour, 1.2};
  svg.line({spot.at.x, y.at(point.low)}, {spot.at.x, y.at(point.high)}, thin);
  for (const double end : {point.low, point.high}) {
    if (!y.covers(end)) continue;
    svg.line({spot.at.x - cap, y.at(end)}, {spot.at.x + cap, y.at(end)}, thin);
  }
}

void draw_joined(Svg& svg, const Line& line) {
  for (const auto& run : line.runs) {
    std::vector<Xy> points;
    for (const Spot& spot : run) points.push_back(spot.at);
    if (points.size() < 2) continue;
    svg.polyline(points, {line.style.colour, line_width, line.style.dash});
  }
}

void draw_markers(Svg& svg, const Line& line, const Axis& x, const Axis& y) {
  const auto number = [](double value) { return compact_number(value, 4); };
  line.for_each_spot([&](const Spot& spot) {
    const Point& point = *spot.point;
    if (!x.covers(point.x) || !y.covers(point.y)) return;
    std::string words = line.series->name.empty() ? "" : line.series->name + ": ";
    words += number(point.x) + ", " + number(point.y);
    if (has_interval(point)) words += " [" + number(point.low) + ", " + number(point.high) + "]";
    if (point.starred) words += "*";
    svg.open_group(words);
    draw_marker(svg, line.style, spot.at);
    if (point.starred) {
      svg.text({spot.at.x + marker_room, spot.at.y}, "*",
               {tick_font, Anchor::start, line.style.colour});
    }
    svg.close();
  });
}

}  // namespace

std::vector<Tile> tiles_of(std::span<const double> values, std::size_t columns) {
  std::vector<Tile> tiles;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!std::isfinite(values[i])) continue;
    const auto column = static_cast<double>(i % columns), row = static_cast<double>(i / columns);
    tiles.push_back({column, column + 1, row, row + 1, values[i]});
    tiles.back().tooltip = compact_number(values[i]);
  }
  return tiles;
}

std::string to_svg(const Chart& chart) {
  const Ranges ranges = ranges_of(chart);
  const bool rows = !chart.y.names.empty();
  const double top = picture_margin;
  const double bottom =
      top + (rows ? std::max(row_pitch * static_cast<double>(chart.y.names.size()), least_height)
                  : plot_height);
  const Axis y(chart.y, ranges.y, AxisSide::vertical, rows ? top : bottom, rows ? bottom : top);
  std::optional<Colours> colours;
  if (chart.colours) colours.emplace(*chart.colours, chart.tiles, bottom, top);

  const bool has_bar = colours && std::ranges::any_of(chart.tiles, [](const Tile& tile) {
                         return std::isfinite(tile.value);
                       });
  const double room = has_bar ? gap + colours->width() + 4 : picture_margin;
  const double left = y_axis_width(y);
  const Box plot = {left, top, std::max(picture_width - room, left + 60), bottom};
  const double end = chart.tiles.empty() ? inset : 0;
  const Axis x(chart.x, ranges.x, AxisSide::horizontal, plot.left + end, plot.right - end);
  std::vector<Line> lines = lines_of(chart, x, y);
  if (chart.side_by_side) put_side_by_side(lines);

  const std::vector<LegendEntry> entries = entries_of(chart, lines);
  const double legend_top = bottom + x_axis_height(chart.x.label) + 4;
  const double legend_bottom = legend_top + legend_height(entries, plot.width()),
               note_height = chart.note.empty() ? 0 : tick_font + 6;
  Svg svg(plot.right + room, legend_bottom + note_height + 8,
          chart.y.label.empty() ? chart.x.label : chart.y.label);
  if (chart.tiles.empty()) draw_grid(svg, y, plot);
  draw_x_axis(svg, x, plot);
  draw_y_axis(svg, y, plot);
  for (const Tile& tile : chart.tiles) draw_tile(svg, tile, colours, x, y);
  for (const ReferenceLine& reference : chart.references) {
    draw_reference(svg, reference, x, y, plot);
  }
  for (const Line& line : lines) {
    line.for_each_spot([&](const Spot& spot) { draw_interval(svg, line, spot, y); });
  }
  for (const Line& line : lines) draw_joined(svg, line);
  for (const Line& line : lines) draw_markers(svg, line, x, y);
  const bool no_lines =
      std::ranges::all_of(lines, [](const Line& line) { return line.runs.empty(); });
  if (no_lines && chart.tiles.empty()) {
    svg.text({(plot.left + plot.right) / 2, (plot.top + plot.bottom) / 2}, "no data",
             {label_font, Anchor::middle, soft_ink});
  }
  if (has_bar) colours->draw(svg, plot.right + gap);
  draw_legend(svg, entries, {plot.left, legend_top}, plot.width());
  if (!chart.note.empty()) {
    svg.text({plot.left, legend_bottom + tick_font + 3},
             fit_text(chart.note, tick_font, plot.width()), {tick_font, Anchor::start, soft_ink});
  }
  return svg.finish();
}

}  // namespace coppice::study
