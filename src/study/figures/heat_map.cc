#include <algorithm>
#include <cmath>
#include <cstddef>

#include "study/figures/charts.h"
#include "study/figures/frame.h"
#include "study/figures/style.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double bar_gap = 16;  // between the plot and the colour bar
constexpr double bar_width = 14;
constexpr double longest_heat_name = 240;

double widest_of(const std::vector<std::string>& names) {
  double widest = 0;
  for (const std::string& name : names) widest = std::max(widest, text_width(name, tick_font));
  return std::min(widest, longest_heat_name);
}

// The axis of a histogram's edges; without edges it bears no ticks that are drawn.
Axis edge_axis(const std::string& label, const std::vector<double>& edges, AxisSide side,
               double pixel_low, double pixel_high) {
  AxisSpec spec = {label};
  if (!edges.empty()) {
    spec.low = edges.front();
    spec.high = edges.back();
  }
  return Axis(spec, DataRange(spec.scale), side, pixel_low, pixel_high);
}

// Pixels between which cells lie, [count + 1]: at the edges, or evenly from `start` to `end`.
std::vector<double> bounds(const std::vector<double>& edges, std::size_t count, const Axis& axis,
                           double start, double end) {
  std::vector<double> pixels;
  for (std::size_t i = 0; i <= count; ++i) {
    const double share = count == 0 ? 0 : static_cast<double>(i) / static_cast<double>(count);
    pixels.push_back(edges.empty() ? start + (end - start) * share : axis.at(edges[i]));
  }
  return pixels;
}

// How far apart names are drawn that need so much of the plot: 1 for each cell's, 2 for every
// second.
std::size_t stride_of(double needed, double length, std::size_t cells) {
  const double cell = cells == 0 ? length : length / static_cast<double>(cells);
  return static_cast<std::size_t>(std::max(1.0, std::ceil(needed / cell)));
}

// A map's cells as they are drawn.
struct Cells {
  bool histogram;
  std::size_t columns, rows;
  std::vector<double> values;  // [rows][columns]; NaN where nothing is drawn

  explicit Cells(const HeatMap& map);
  double at(std::size_t row, std::size_t column) const { return values[row * columns + column]; }
};

Cells::Cells(const HeatMap& map)
    : histogram(!map.edges.empty()),
      columns(histogram ? map.edges.size() - 1 : map.x_names.size()),
      rows(histogram ? map.edges.size() - 1 : map.y_names.size()),
      values(map.cells) {
  for (double& v : values) {
    if (!std::isfinite(v) || (map.zero_is_empty && v == 0)) v = std::nan("");
  }
  for (std::size_t column = 0; histogram && column < columns; ++column) {
    double sum = 0;
    for (std::size_t row = 0; row < rows; ++row) {
      if (!std::isnan(at(row, column))) sum += at(row, column);
    }
    for (std::size_t row = 0; row < rows; ++row) values[row * columns + column] /= sum;
  }
}

std::string colour_of(const HeatMap& map, double share) {
  return map.centre ? diverging_colour(2 * share - 1) : heat_colour(share);
}

AxisSpec value_spec(const HeatMap& map, const DataRange& range) {
  AxisSpec spec = map.value;
  if (!map.centre || range.empty()) return spec;
  const double centre = *map.centre;
  double reach = std::max(range.high() - centre, centre - range.low());
  if (centre > 0) reach = std::min(reach, centre);
  if (reach == 0) reach = centre == 0 ? 1 : 0.1 * std::abs(centre);
  spec.low = centre - reach;
  spec.high = centre + reach;
  return spec;
}

// One number of decimals for all cells, by the greatest.
std::string printed(const HeatMap& map, double v, double greatest) {
  if (map.value.per_cent) return fixed_number(100 * v, 0) + "%";
  if (greatest >= 1000 || greatest < 0.1) return compact_number(v, 2);
  return fixed_number(v, greatest < 10 ? 2 : greatest < 100 ? 1 : 0);
}

bool values_fit(const HeatMap& map, const Cells& cells, const std::vector<double>& xs,
                const std::vector<double>& ys, double greatest) {
  double width = 1e9, height = 1e9;
  for (std::size_t i = 1; i < xs.size(); ++i) width = std::min(width, xs[i] - xs[i - 1]);
  for (std::size_t i = 1; i < ys.size(); ++i)
    height = std::min(height, std::abs(ys[i] - ys[i - 1]));
  return height >= tick_font + 4 && std::ranges::all_of(cells.values, [&](double v) {
           return std::isnan(v) || text_width(printed(map, v, greatest), tick_font) + 4 <= width;
         });
}

void draw_cells(Svg& svg, const HeatMap& map, const Cells& cells, const std::vector<double>& xs,
                const std::vector<double>& ys, const Axis& colours) {
  const double length = colours.pixel_high() - colours.pixel_low();
  double greatest = 0;
  for (const double v : cells.values)
    greatest = std::isnan(v) ? greatest : std::max(greatest, std::abs(v));
  const bool print = map.print_values && values_fit(map, cells, xs, ys, greatest);
  svg.open_turned();
  for (std::size_t row = 0; row < cells.rows; ++row) {
    for (std::size_t column = 0; column < cells.columns; ++column) {
      const double v = cells.at(row, column);
      if (std::isnan(v)) continue;
      const std::string fill =
          colour_of(map, (colours.clamped_at(v) - colours.pixel_low()) / length);
      const Box box = {xs[column], std::min(ys[row], ys[row + 1]), xs[column + 1],
                       std::max(ys[row], ys[row + 1])};
      svg.open_group(compact_number(v));
      // A hairline of the same colour closes the seams that smoothing leaves between cells; cells
      // with values are parted instead.
      svg.rect(box, fill, print ? Stroke{"#fff", 1} : Stroke{fill, 0.4});
      if (print) {
        svg.text({(box.left + box.right) / 2, (box.top + box.bottom) / 2 + 0.35 * tick_font},
                 printed(map, v, greatest), {tick_font, Anchor::middle, ink_on(fill)});
      }
      svg.close();
    }
  }
  svg.close();
}

// Of rows and columns: every name, or every second and so on where they would touch.
void draw_names(Svg& svg, const HeatMap& map, const Cells& cells, const std::vector<double>& xs,
                const std::vector<double>& ys, const Box& plot) {
  const std::size_t across = stride_of(widest_of(map.x_names) + 6, plot.width(), cells.columns);
  for (std::size_t i = 0; i < cells.columns; i += across) {
    svg.text({(xs[i] + xs[i + 1]) / 2, plot.bottom + tick_font + 6},
             fit_text(map.x_names[i], tick_font, longest_heat_name),
             {tick_font, Anchor::middle, ink});
  }
  svg.text({(plot.left + plot.right) / 2, plot.bottom + x_axis_height(map.x_label) - 4},
           map.x_label, {label_font, Anchor::middle, ink});
  const std::size_t down = stride_of(tick_font + 3, plot.height(), cells.rows);
  for (std::size_t i = 0; i < cells.rows; i += down) {
    svg.text({plot.left - 6, (ys[i] + ys[i + 1]) / 2 + 0.35 * tick_font},
             fit_text(map.y_names[i], tick_font, longest_heat_name), {tick_font, Anchor::end, ink});
  }
  if (map.y_label.empty()) return;
  svg.text({label_font + 4, (plot.top + plot.bottom) / 2}, map.y_label,
           {label_font, Anchor::middle, ink, false, true});
}

void draw_colour_bar(Svg& svg, const HeatMap& map, const Axis& colours, double left) {
  const double bottom = colours.pixel_low(), top = colours.pixel_high();
  const double right = left + bar_width;
  constexpr int slices = 64;
  // Each slice reaches down to the end under the next ones, so that no seams show.
  svg.open_turned();
  for (int i = slices - 1; i >= 0; --i) {
    const double high = bottom + (top - bottom) * (i + 1) / slices;
    svg.rect({left, high, right, bottom}, colour_of(map, (i + 0.5) / slices));
  }
  svg.close();
  svg.rect({left, top, right, bottom}, "none", {rule_ink, 0.7});
  for (const Tick& tick : colours.ticks()) {
    const double y = colours.at(tick.value);
    svg.line({right, y}, {right + 4, y}, {ink, axis_width});
    svg.text({right + 7, y + 0.35 * tick_font}, tick.label, {tick_font});
  }
  if (map.value.label.empty()) return;
  svg.text({right + 8 + colours.label_width() + label_font + 4, (top + bottom) / 2},
           map.value.label, {label_font, Anchor::middle, ink, false, true});
}

// On a rim of paper, to be seen on light and dark cells.
void draw_line(Svg& svg, const HeatMap& map, const Axis& x, const Axis& y, const Box& plot) {
  std::vector<std::vector<Point>> runs(1);
  for (const Point& point : map.line) {
    if (std::isfinite(point.x) && std::isfinite(point.y)) {
      runs.back().push_back(point);
    } else if (!runs.back().empty()) {
      runs.emplace_back();
    }
  }
  svg.open_clip(plot);
  for (const Stroke& stroke : {Stroke{paper, 4}, Stroke{strong_ink, 1.5}}) {
    for (const auto& run : runs) {
      std::vector<Xy> joined;
      for (const Point& point : run) joined.push_back({x.at(point.x), y.at(point.y)});
      if (joined.size() > 1) svg.polyline(joined, stroke);
    }
  }
  for (const auto& run : runs) {
    for (const Point& point : run) {
      svg.open_group(compact_number(point.x) + ", " + compact_number(point.y));
      svg.circle({x.at(point.x), y.at(point.y)}, 3, paper, {strong_ink, 1.3});
      svg.close();
    }
  }
  svg.close();
  const SeriesStyle key = {strong_ink, "", Marker::circle, true};
  draw_entry(svg, {map.line_name, key}, {plot.left, plot.top - legend_row / 2 - 3}, plot.width());
}

}  // namespace

std::string to_svg(const HeatMap& map) {
  const Cells cells(map);
  const bool named_line = !map.line.empty() && !map.line_name.empty();
  const double top = picture_margin + (named_line ? legend_row + 2 : 0);
  const double bottom = std::max(map.height - x_axis_height(map.x_label) - 4, top + 40);
  const Axis y = edge_axis(map.y_label, map.edges, AxisSide::vertical, bottom, top);
  DataRange range(Scale::linear);
  for (const double v : cells.values) range.include(v);
  const Axis colours(value_spec(map, range), range, AxisSide::vertical, bottom, top);
  const auto label_room = [](const std::string& label) {
    return label.empty() ? 0 : label_font + 8;
  };
  const double left =
      cells.histogram ? 4 + y_axis_width(y) : 14 + widest_of(map.y_names) + label_room(map.y_label);
  const double bar_room =
      bar_gap + bar_width + 8 + colours.label_width() + label_room(map.value.label) + 4;
  const Box plot = {left, top, std::max(map.width - bar_room, left + 40), bottom};
  const Axis x = edge_axis(map.x_label, map.edges, AxisSide::horizontal, plot.left, plot.right);
  const auto xs = bounds(map.edges, cells.columns, x, plot.left, plot.right);
  const auto ys = bounds(map.edges, cells.rows, y, plot.top, plot.bottom);

  Svg svg(map.width, bottom + x_axis_height(map.x_label) + 4, map.value.label);
  draw_cells(svg, map, cells, xs, ys, colours);
  svg.rect(plot, "none", {rule_ink, 0.7});
  if (range.empty()) draw_no_data(svg, plot);
  if (!map.line.empty()) draw_line(svg, map, x, y, plot);
  if (cells.histogram) {
    draw_x_axis(svg, x, plot);
    draw_y_axis(svg, y, plot, false, y_axis_width(y));
  } else {
    draw_names(svg, map, cells, xs, ys, plot);
  }
  if (!range.empty()) draw_colour_bar(svg, map, colours, plot.right + bar_gap);
  return svg.finish();
}

}  // namespace coppice::study
