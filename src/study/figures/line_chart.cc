#include "study/figures/charts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

#include "study/figures/frame.h"
#include "study/figures/style.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double inset = 24;       // pixels between the ends of the x axis and its outermost data
constexpr double marker_room = 7;  // how far markers may reach beyond the plot
constexpr double legend_gap = 14;

struct Line {
  const Series* series;
  SeriesStyle style;
  std::vector<std::vector<Point>> runs;  // of points that can be shown, between those that cannot
  std::map<double, double> shifts = {};  // in pixels, by x

  double at(const Axis& x, const Point& point) const {
    const auto shift = shifts.find(point.x);
    return x.at(point.x) + (shift == shifts.end() ? 0 : shift->second);
  }
};

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
    for (const auto& run : line.runs) {
      for (const Point& point : run) places.push_back({x.at(point.x), &line, point.x});
    }
  }
  std::stable_sort(places.begin(), places.end(),
                   [](const Place& a, const Place& b) { return a.at < b.at; });
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
    std::sort(group.begin(), group.end(),
              [](const Place& a, const Place& b) { return a.line < b.line; });
    const auto count = static_cast<double>(group.size());
    const double step = std::min(widest_step, share_of_room * room / count);
    for (std::size_t i = 0; i < group.size(); ++i) {
      group[i].line->shifts[group[i].value] = step * (static_cast<double>(i) - (count - 1) / 2);
    }
  }
}

bool is_shown(const LineChart& chart, const Point& point) {
  return can_show(chart.x.scale, point.x) && can_show(chart.y.scale, point.y);
}

std::vector<Line> lines_of(const LineChart& chart) {
  std::vector<Line> lines;
  std::size_t measured = 0;
  for (const Series& series : chart.series) {
    Line line = {&series, ceiling_style(), {}};
    if (series.kind == SeriesKind::measured) {
      line.style = series_style(series.style.value_or(measured++));
      line.style.open = series.open;
    }
    bool joined = false;
    for (const Point& point : series.points) {
      if (!is_shown(chart, point)) {
        joined = false;
        continue;
      }
      if (!joined) line.runs.emplace_back();
      line.runs.back().push_back(point);
      joined = true;
    }
    lines.push_back(std::move(line));
  }
  return lines;
}

// What is named, and where its line ends (NaN: at no height of its own).
struct Named {
  LegendEntry entry;
  Xy end;
};

std::string range_text(const Point& point) {
  std::string text = compact_number(point.x, 4) + ", " + compact_number(point.y, 4);
  if (std::isfinite(point.low) && std::isfinite(point.high)) {
    text += " [" + compact_number(point.low, 4) + ", " + compact_number(point.high, 4) + "]";
  }
  return text;
}

class LinePlot {
 public:
  explicit LinePlot(const LineChart& chart) : chart_(chart), lines_(lines_of(chart)) {}

  std::string draw();

 private:
  DataRange x_range() const;
  DataRange y_range() const;
  std::vector<Named> named(const Axis& x, const Axis& y, const Box& plot) const;
  void draw_reference(Svg& svg, const ReferenceLine& reference, const Axis& x, const Axis& y,
                      const Box& plot) const;
  void draw_line(Svg& svg, const Line& line, const Axis& x, const Axis& y) const;
  void draw_intervals(Svg& svg, const Line& line, const Axis& x, const Axis& y) const;
  void draw_markers(Svg& svg, const Line& line, const Axis& x, const Axis& y) const;
  void draw_names(Svg& svg, const std::vector<Named>& names, const Box& plot) const;

  const LineChart& chart_;
  std::vector<Line> lines_;
};

DataRange LinePlot::x_range() const {
  DataRange range(chart_.x.scale);
  for (const Line& line : lines_) {
    for (const auto& run : line.runs) {
      for (const Point& point : run) range.include(point.x);
    }
  }
  return range;
}

DataRange LinePlot::y_range() const {
  DataRange range(chart_.y.scale);
  for (const Line& line : lines_) {
    for (const auto& run : line.runs) {
      for (const Point& point : run) {
        for (const double value : {point.y, point.low, point.high}) range.include(value);
      }
    }
  }
  for (const ReferenceLine& reference : chart_.references) {
    if (reference.kind == ReferenceLine::Kind::horizontal) range.include(reference.at);
  }
  // Room around the outermost values, but none beyond 0: what cannot be negative stays so.
  if (chart_.y.scale == Scale::linear && !range.empty()) {
    const double low = range.low(), high = range.high();
    const double room = 0.03 * (high - low);
    range.include(low >= 0 ? std::max(low - room, 0.0) : low - room);
    range.include(high <= 0 ? std::min(high + room, 0.0) : high + room);
  }
  return range;
}

std::vector<Named> LinePlot::named(const Axis& x, const Axis& y, const Box& plot) const {
  std::vector<Named> names;
  for (const Line& line : lines_) {
    if (line.series->name.empty()) continue;
    Xy end = {std::nan(""), std::nan("")};
    for (const auto& run : line.runs) {
      for (const Point& point : run) {
        if (!(x.at(point.x) < end.x)) end = {x.at(point.x), y.at(point.y)};
      }
    }
    names.push_back({{line.series->name, line.style}, end});
  }
  for (const ReferenceLine& reference : chart_.references) {
    if (reference.label.empty()) continue;
    const double value =
        reference.kind == ReferenceLine::Kind::horizontal ? reference.at : x.high();
    names.push_back({{reference.label, reference_style()}, {plot.right, y.at(value)}});
  }
  return names;
}

std::string LinePlot::draw() {
  const double top = picture_margin;
  const double bottom = std::max(chart_.height - x_axis_height(chart_.x.label) - 4, top + 40);
  const Axis y(chart_.y, y_range(), AxisSide::vertical, bottom, top, tick_font);
  Box plot = {4 + y_axis_width(y), top, chart_.width - picture_margin, bottom};

  // Names go beside the plot where they leave it most of the width, else below.
  std::vector<LegendEntry> entries;
  for (const Named& name : named(y, y, plot)) entries.push_back(name.entry);
  const double widest = widest_entry(entries);
  const bool beside =
      !entries.empty() && widest <= 0.38 * chart_.width &&
      legend_row * static_cast<double>(entries.size()) <= plot.height() + legend_row;
  double height = bottom + x_axis_height(chart_.x.label) + 4;
  const double legend_top = height;
  if (beside) {
    plot.right = chart_.width - widest - legend_gap - 6;
  } else if (!entries.empty()) {
    height += legend_height(entries, plot.width()) + 8;
  }
  const Axis x(chart_.x, x_range(), AxisSide::horizontal, plot.left + inset, plot.right - inset,
               tick_font);

  if (chart_.side_by_side) put_side_by_side(lines_, x);
  Svg svg(chart_.width, height, chart_.y.label);
  draw_y_axis(svg, y, plot, true, y_axis_width(y));
  draw_x_axis(svg, x, plot);
  svg.open_clip(
      {plot.left, plot.top - marker_room, plot.right + marker_room, plot.bottom + marker_room});
  for (const ReferenceLine& reference : chart_.references) {
    draw_reference(svg, reference, x, y, plot);
  }
  for (const Line& line : lines_) draw_intervals(svg, line, x, y);
  for (const Line& line : lines_) draw_line(svg, line, x, y);
  for (const Line& line : lines_) draw_markers(svg, line, x, y);
  svg.close();
  const bool any = std::any_of(lines_.begin(), lines_.end(),
                               [](const Line& line) { return !line.runs.empty(); });
  if (!any) draw_no_data(svg, plot);
  if (beside) {
    draw_names(svg, named(x, y, plot), plot);
  } else {
    draw_legend(svg, entries, {plot.left, legend_top}, plot.width());
  }
  return svg.finish();
}

void LinePlot::draw_reference(Svg& svg, const ReferenceLine& reference, const Axis& x,
                              const Axis& y, const Box& plot) const {
  const SeriesStyle style = reference_style();
  const Stroke stroke = {style.colour, 1.1, style.dash};
  if (reference.kind == ReferenceLine::Kind::horizontal) {
    if (!can_show(chart_.y.scale, reference.at)) return;
    svg.line({plot.left, y.at(reference.at)}, {plot.right, y.at(reference.at)}, stroke);
    return;
  }
  // Straight only where both axes have one scale.
  constexpr int pieces = 128;
  std::vector<Xy> points;
  for (int i = 0; i <= pieces; ++i) {
    double value = x.low() + (x.high() - x.low()) * i / pieces;
    if (chart_.x.scale != Scale::linear) {
      value = x.low() * std::pow(x.high() / x.low(), static_cast<double>(i) / pieces);
    }
    value = std::clamp(value, x.low(), x.high());
    if (y.covers(value)) points.push_back({x.at(value), y.at(value)});
  }
  if (points.size() > 1) svg.polyline(points, stroke);
}

void LinePlot::draw_intervals(Svg& svg, const Line& line, const Axis& x, const Axis& y) const {
  constexpr double cap = 3;
  const Stroke thin = {line.style.colour, 1};
  for (const auto& run : line.runs) {
    for (const Point& point : run) {
      if (!std::isfinite(point.low) || !std::isfinite(point.high)) continue;
      const double at = line.at(x, point);
      const double high = y.clamped_at(point.high), low = y.clamped_at(point.low);
      svg.line({at, low}, {at, high}, thin);
      if (y.covers(point.high)) svg.line({at - cap, high}, {at + cap, high}, thin);
      if (y.covers(point.low)) svg.line({at - cap, low}, {at + cap, low}, thin);
    }
  }
}

void LinePlot::draw_line(Svg& svg, const Line& line, const Axis& x, const Axis& y) const {
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

void LinePlot::draw_markers(Svg& svg, const Line& line, const Axis& x, const Axis& y) const {
  for (const auto& run : line.runs) {
    for (const Point& point : run) {
      if (!x.covers(point.x) || !y.covers(point.y)) continue;
      svg.open_group(line.series->name + ": " + range_text(point));
      draw_marker(svg, line.style, {line.at(x, point), y.at(point.y)});
      svg.close();
    }
  }
}

// At the ends of the lines where every line ends near the right and the names stay near their ends;
// else from the top, in the order given.
void LinePlot::draw_names(Svg& svg, const std::vector<Named>& names, const Box& plot) const {
  constexpr double farthest_shift = 40;
  std::vector<double> wanted;
  bool direct = true;
  for (const Named& name : names) {
    direct = direct && name.end.x >= plot.right - inset - 0.12 * plot.width() &&
             name.end.y >= plot.top - 1 && name.end.y <= plot.bottom + 1;
    wanted.push_back(name.end.y);
  }
  std::vector<double> placed(names.size());
  if (direct) {
    placed = spread_labels(wanted, legend_row - 2, plot.top, plot.bottom);
    for (std::size_t i = 0; i < names.size(); ++i) {
      direct = direct && std::abs(placed[i] - wanted[i]) <= farthest_shift;
    }
  }
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (!direct) placed[i] = plot.top + legend_row * (static_cast<double>(i) + 0.5);
    if (direct) {
      const Xy end = names[i].end;
      svg.line({std::min(end.x + 6, plot.right), end.y}, {plot.right + legend_gap - 2, placed[i]},
               {rule_ink, 0.7});
    }
    const double left = plot.right + legend_gap;
    draw_entry(svg, names[i].entry, {left, placed[i]}, chart_.width - left);
  }
}

}  // namespace

std::string to_svg(const LineChart& chart) { return LinePlot(chart).draw(); }

}  // namespace coppice::study
