#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "study/figures/charts.h"
#include "study/figures/frame.h"
#include "study/figures/style.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double line_chart_width = 600,
                 line_chart_height = 360;  // without a legend below the plot
constexpr double inset = 24;       // pixels between the ends of the x axis and its outermost data
constexpr double marker_room = 7;  // how far markers may reach beyond the plot
constexpr double legend_gap = 14;

struct Line {
  const Series* series;
  SeriesStyle style;
  std::vector<std::vector<Point>> runs = {};  // of points that can be shown, parted by the others
  std::map<double, double> shifts = {};       // in pixels, by x

  double at(const Axis& x, const Point& point) const {
    const auto shift = shifts.find(point.x);
    return x.at(point.x) + (shift == shifts.end() ? 0 : shift->second);
  }
  void for_each_point(const auto& visit) const {
    for (const auto& run : runs) {
      for (const Point& point : run) visit(point);
    }
  }
};

bool has_interval(const Point& point) {
  return std::isfinite(point.low) && std::isfinite(point.high);
}

// Parts what stands at one x, or nearly so. Each such group keeps to most of its room.
void put_side_by_side(std::vector<Line>& lines, const Axis& x) {
  constexpr double one_place = 4, widest_step = 7, share_of_room = 0.7;  // pixels
  struct Place {
    double at;
    Line* line;
    double value;
  };
  std::vector<Place> places;
  for (Line& line : lines) {
    if (line.series->kind != SeriesKind::measured) continue;
    line.for_each_point([&](const Point& p) { places.push_back({x.at(p.x), &line, p.x}); });
  }
  std::ranges::stable_sort(places, {}, &Place::at);
  std::vector<std::vector<Place>> groups;
  for (const Place& place : places) {
    if (groups.empty() || place.at - groups.back().front().at > one_place) groups.emplace_back();
    groups.back().push_back(place);
  }
  for (std::size_t g = 0; g < groups.size(); ++g) {
    double room = std::numeric_limits<double>::max();
    const double here = groups[g].front().at;
    if (g > 0) room = std::min(room, here - groups[g - 1].front().at);
    if (g + 1 < groups.size()) room = std::min(room, groups[g + 1].front().at - here);
    auto& group = groups[g];
    // In the order of the series, which is that of the lines' places in memory.
    std::ranges::sort(group, {}, &Place::line);
    const auto count = static_cast<double>(group.size());
    const double step = std::min(widest_step, share_of_room * room / count);
    for (std::size_t i = 0; i < group.size(); ++i) {
      group[i].line->shifts[group[i].value] = step * (static_cast<double>(i) - (count - 1) / 2);
    }
  }
}

std::vector<Line> lines_of(const LineChart& chart) {
  std::vector<Line> lines;
  std::size_t measured = 0;
  for (const Series& series : chart.series) {
    Line line = {&series, ceiling_style()};
    if (series.kind == SeriesKind::measured) {
      line.style = series_style(series.style.value_or(measured++));
      line.style.open = series.open;
    }
    bool joined = false;
    for (const Point& point : series.points) {
      const bool shown = can_show(chart.x.scale, point.x) && can_show(chart.y.scale, point.y);
      if (shown && !joined) line.runs.emplace_back();
      if (shown) line.runs.back().push_back(point);
      joined = shown;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

DataRange x_range(const LineChart& chart, const std::vector<Line>& lines) {
  DataRange range(chart.x.scale);
  for (const Line& line : lines) line.for_each_point([&](const Point& p) { range.include(p.x); });
  return range;
}

DataRange y_range(const LineChart& chart, const std::vector<Line>& lines) {
  DataRange range(chart.y.scale);
  for (const Line& line : lines) {
    line.for_each_point([&](const Point& point) {
      for (const double value : {point.y, point.low, point.high}) range.include(value);
    });
  }
  for (const ReferenceLine& reference : chart.references) {
    if (reference.kind == ReferenceLine::Kind::horizontal) range.include(reference.at);
  }
  // Room around the outermost values, but none beyond 0: what cannot be negative stays so.
  if (chart.y.scale == Scale::linear && !range.empty()) {
    const double low = range.low(), high = range.high();
    const double room = 0.03 * (high - low);
    range.include(low >= 0 ? std::max(low - room, 0.0) : low - room);
    range.include(high <= 0 ? std::min(high + room, 0.0) : high + room);
  }
  return range;
}

// What has a name: lines, then references.
std::vector<LegendEntry> entries_of(const LineChart& chart, const std::vector<Line>& lines) {
  std::vector<LegendEntry> entries;
  for (const Line& line : lines) {
    if (!line.series->name.empty()) entries.push_back({line.series->name, line.style});
  }
  for (const ReferenceLine& reference : chart.references) {
    if (!reference.label.empty()) entries.push_back({reference.label, reference_style()});
  }
  return entries;
}

// Where each entry's line ends; NaN: at no height of its own.
std::vector<Xy> ends_of(const LineChart& chart, const std::vector<Line>& lines, const Axis& x,
                        const Axis& y, const Box& plot) {
  std::vector<Xy> ends;
  for (const Line& line : lines) {
    if (line.series->name.empty()) continue;
    Xy& end = ends.emplace_back(Xy{std::nan(""), std::nan("")});
    line.for_each_point([&](const Point& point) {
      if (!(x.at(point.x) < end.x)) end = {x.at(point.x), y.at(point.y)};
    });
  }
  for (const ReferenceLine& reference : chart.references) {
    const bool flat = reference.kind == ReferenceLine::Kind::horizontal;
    if (!reference.label.empty())
      ends.push_back({plot.right, y.at(flat ? reference.at : x.high())});
  }
  return ends;
}

// At the ends of the lines where every line ends near the right and the names stay near their ends;
// else from the top, in the order given.
void draw_names(Svg& svg, const std::vector<LegendEntry>& entries, const std::vector<Xy>& ends,
                const Box& plot) {
  constexpr double farthest_shift = 40;
  std::vector<double> wanted, placed;
  bool direct = true;
  for (const Xy& end : ends) {
    direct = direct && end.x >= plot.right - inset - 0.12 * plot.width() && end.y >= plot.top - 1 &&
             end.y <= plot.bottom + 1;
    wanted.push_back(end.y);
  }
  if (direct) placed = spread_labels(wanted, legend_row - 2, plot.top, plot.bottom);
  for (std::size_t i = 0; i < placed.size(); ++i) {
    direct = direct && std::abs(placed[i] - wanted[i]) <= farthest_shift;
  }
  const double left = plot.right + legend_gap;
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const double height =
        direct ? placed[i] : plot.top + legend_row * (static_cast<double>(i) + 0.5);
    if (direct) {
      svg.line({std::min(ends[i].x + 6, plot.right), ends[i].y}, {left - 2, height},
               {rule_ink, 0.7});
    }
    draw_entry(svg, entries[i], {left, height}, line_chart_width - left);
  }
}

void draw_reference(Svg& svg, const ReferenceLine& reference, const Axis& x, const Axis& y,
                    const Box& plot) {
  const SeriesStyle style = reference_style();
  const Stroke stroke = {style.colour, 1.1, style.dash};
  if (reference.kind == ReferenceLine::Kind::horizontal) {
    svg.line({plot.left, y.at(reference.at)}, {plot.right, y.at(reference.at)}, stroke);
    return;
  }
  // Straight only where both axes have one scale.
  constexpr int pieces = 128;
  std::vector<Xy> points;
  for (int i = 0; i <= pieces; ++i) {
    double value = x.low() + (x.high() - x.low()) * i / pieces;
    if (x.scale() != Scale::linear) {
      value = x.low() * std::pow(x.high() / x.low(), static_cast<double>(i) / pieces);
    }
    value = std::clamp(value, x.low(), x.high());
    if (y.covers(value)) points.push_back({x.at(value), y.at(value)});
  }
  if (points.size() > 1) svg.polyline(points, stroke);
}

void draw_intervals(Svg& svg, const Line& line, const Axis& x, const Axis& y) {
  constexpr double cap = 3;
  const Stroke thin = {line.style.colour, 1};
  line.for_each_point([&](const Point& point) {
    if (!has_interval(point)) return;
    const double at = line.at(x, point);
    const double high = y.clamped_at(point.high), low = y.clamped_at(point.low);
    svg.line({at, low}, {at, high}, thin);
    if (y.covers(point.high)) svg.line({at - cap, high}, {at + cap, high}, thin);
    if (y.covers(point.low)) svg.line({at - cap, low}, {at + cap, low}, thin);
  });
}

void draw_line(Svg& svg, const Line& line, const Axis& x, const Axis& y) {
  for (const auto& run : line.runs) {
    std::vector<Xy> points;
    for (const Point& point : run) points.push_back({line.at(x, point), y.at(point.y)});
    // A bound at a single place is drawn as a short piece, for it has no marker.
    if (points.size() == 1 && line.style.marker == Marker::none) {
      points = {{points[0].x - 8, points[0].y}, {points[0].x + 8, points[0].y}};
    }
    if (points.size() > 1) {
      svg.polyline(points, {line.style.colour, line_width, line.style.dash});
    }
  }
}

void draw_markers(Svg& svg, const Line& line, const Axis& x, const Axis& y) {
  const auto number = [](double value) { return compact_number(value, 4); };
  line.for_each_point([&](const Point& point) {
    if (!x.covers(point.x) || !y.covers(point.y)) return;
    std::string words = line.series->name + ": " + number(point.x) + ", " + number(point.y);
    if (has_interval(point)) words += " [" + number(point.low) + ", " + number(point.high) + "]";
    svg.open_group(words);
    draw_marker(svg, line.style, {line.at(x, point), y.at(point.y)});
    svg.close();
  });
}

}  // namespace

std::string to_svg(const LineChart& chart) {
  std::vector<Line> lines = lines_of(chart);
  const double top = picture_margin;
  const double bottom = std::max(line_chart_height - x_axis_height(chart.x.label) - 4, top + 40);
  const Axis y(chart.y, y_range(chart, lines), AxisSide::vertical, bottom, top);
  Box plot = {4 + y_axis_width(y), top, line_chart_width - picture_margin, bottom};

  // Names go beside the plot where they leave it most of the width, else below.
  const std::vector<LegendEntry> names = entries_of(chart, lines);
  const double widest = widest_entry(names);
  const bool beside = !names.empty() && widest <= 0.38 * line_chart_width &&
                      legend_row * static_cast<double>(names.size()) <= plot.height() + legend_row;
  const double legend_top = bottom + x_axis_height(chart.x.label) + 4;
  if (beside) plot.right = line_chart_width - widest - legend_gap - 6;
  const bool below = !beside && !names.empty();
  const Axis x(chart.x, x_range(chart, lines), AxisSide::horizontal, plot.left + inset,
               plot.right - inset);

  if (chart.side_by_side) put_side_by_side(lines, x);
  Svg svg(line_chart_width, legend_top + (below ? legend_height(names, plot.width()) + 8 : 0),
          chart.y.label);
  draw_y_axis(svg, y, plot, true, y_axis_width(y));
  draw_x_axis(svg, x, plot);
  svg.open_clip(
      {plot.left, plot.top - marker_room, plot.right + marker_room, plot.bottom + marker_room});
  for (const ReferenceLine& reference : chart.references) {
    draw_reference(svg, reference, x, y, plot);
  }
  for (const Line& line : lines) draw_intervals(svg, line, x, y);
  for (const Line& line : lines) draw_line(svg, line, x, y);
  for (const Line& line : lines) draw_markers(svg, line, x, y);
  svg.close();
  if (std::ranges::all_of(lines, [](const Line& line) { return line.runs.empty(); })) {
    draw_no_data(svg, plot);
  }
  if (beside) draw_names(svg, names, ends_of(chart, lines, x, y, plot), plot);
  if (below) draw_legend(svg, names, {plot.left, legend_top}, plot.width());
  return svg.finish();
}

}  // namespace coppice::study
