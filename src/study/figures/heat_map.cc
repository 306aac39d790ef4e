#include <algorithm>
#include <cmath>
#include <cstddef>

#include "base/error.h"
#include "study/figures/charts.h"
#include "study/figures/frame.h"
#include "study/figures/palette.h"
#include "study/figures/style.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double bar_gap = 16;  // between the plot and the colour bar
constexpr double bar_width = 14;
constexpr double longest_heat_name = 240;

void check_edges(const std::vector<double>& edges, Scale scale, const char* which) {
  for (std::size_t i = 0; i < edges.size(); ++i) {
    if (!can_show(scale, edges[i]) || (i > 0 && edges[i] <= edges[i - 1])) {
      throw_usage(cat("heat map: ", which, " edge ", i, " is ", edges[i],
                      "; give finite edges in ascending order (above 0 on a log axis)"));
    }
  }
  if (edges.size() == 1)
    throw_usage(cat("heat map: one ", which, " edge bounds no cell; give two"));
}

std::size_t cell_count(const std::vector<double>& edges, const std::vector<std::string>& names) {
  return edges.empty() ? names.size() : edges.size() - 1;
}

class HeatPlot {
 public:
  explicit HeatPlot(const HeatMap& map)
      : map_(map),
        columns_(cell_count(map.x_edges, map.x_names)),
        rows_(cell_count(map.y_edges, map.y_names)) {
    check_edges(map.x_edges, map.x.scale, "x");
    check_edges(map.y_edges, map.y.scale, "y");
    if (map.cells.size() != rows_ * columns_) {
      throw_usage(cat("heat map: ", map.cells.size(), " cells for ", rows_, " rows of ", columns_,
                      "; give one value for each cell"));
    }
    prepare_values();
  }

  std::string draw();

 private:
  double& value(std::size_t row, std::size_t column) { return values_[row * columns_ + column]; }
  void prepare_values();
  AxisSpec value_spec(const DataRange& range) const;
  std::string colour_of(double share) const {
    return map_.centre ? diverging_colour(2 * share - 1) : heat_colour(share);
  }
  Axis edge_axis(const AxisSpec& spec, const std::vector<double>& edges, AxisSide side,
                 double pixel_low, double pixel_high) const;
  std::vector<double> bounds(const std::vector<double>& edges, std::size_t count, const Axis& axis,
                             double start, double end) const;
  void draw_cells(Svg& svg, const std::vector<double>& xs, const std::vector<double>& ys,
                  const Axis& colours);
  void draw_column_names(Svg& svg, const std::vector<double>& xs, const Box& plot) const;
  void draw_row_names(Svg& svg, const std::vector<double>& ys, const Box& plot) const;
  void draw_colour_bar(Svg& svg, const Axis& colours, double left) const;
  void draw_line(Svg& svg, const Axis& x, const Axis& y, const Box& plot) const;

  const HeatMap& map_;
  std::size_t columns_, rows_;
  std::vector<double> values_;  // as drawn: normalised, NaN where nothing is drawn
};

void HeatPlot::prepare_values() {
  values_ = map_.cells;
  for (double& v : values_) {
    if (!std::isfinite(v) || (map_.zero_is_empty && v == 0)) v = std::nan("");
  }
  if (map_.normalise == Normalise::by_column) {
    for (std::size_t column = 0; column < columns_; ++column) {
      double sum = 0;
      for (std::size_t row = 0; row < rows_; ++row) {
        if (!std::isnan(value(row, column))) sum += value(row, column);
      }
      for (std::size_t row = 0; row < rows_; ++row) {
        value(row, column) = sum > 0 ? value(row, column) / sum : std::nan("");
      }
    }
  }
  for (double& v : values_) {
    if (!can_show(map_.value.scale, v)) v = std::nan("");
  }
}

AxisSpec HeatPlot::value_spec(const DataRange& range) const {
  AxisSpec spec = map_.value;
  if (!map_.centre || range.empty()) return spec;
  const double centre = *map_.centre;
  double reach = std::max(range.high() - centre, centre - range.low());
  if (centre > 0) reach = std::min(reach, centre);
  if (reach == 0) reach = centre == 0 ? 1 : 0.1 * std::abs(centre);
  spec.low = centre - reach;
  spec.high = centre + reach;
  return spec;
}

Axis HeatPlot::edge_axis(const AxisSpec& spec, const std::vector<double>& edges, AxisSide side,
                         double pixel_low, double pixel_high) const {
  AxisSpec fixed = spec;
  if (!edges.empty()) {
    fixed.low = edges.front();
    fixed.high = edges.back();
  }
  return Axis(fixed, DataRange(spec.scale), side, pixel_low, pixel_high, tick_font);
}

std::vector<double> HeatPlot::bounds(const std::vector<double>& edges, std::size_t count,
                                     const Axis& axis, double start, double end) const {
  std::vector<double> pixels;
  for (std::size_t i = 0; i <= count; ++i) {
    const double share = count == 0 ? 0 : static_cast<double>(i) / static_cast<double>(count);
    pixels.push_back(edges.empty() ? start + (end - start) * share : axis.at(edges[i]));
  }
  return pixels;
}

std::string HeatPlot::draw() {
  const bool with_line = !map_.line.empty() && !map_.x_edges.empty() && !map_.y_edges.empty();
  const bool named_line = with_line && !map_.line_name.empty();
  const double top = picture_margin + (named_line ? legend_row + 2 : 0);
  const double bottom = std::max(map_.height - x_axis_height(map_.x.label) - 4, top + 40);
  const Axis y = edge_axis(map_.y, map_.y_edges, AxisSide::vertical, bottom, top);

  DataRange range(map_.value.scale);
  for (const double v : values_) range.include(v);
  const Axis colours(value_spec(range), range, AxisSide::vertical, bottom, top, tick_font);

  double left = 4 + y_axis_width(y);
  if (map_.y_edges.empty()) {
    double widest = 0;
    for (const std::string& name : map_.y_names) {
      widest = std::max(widest, text_width(name, tick_font));
    }
    left = 14 + std::min(widest, longest_heat_name) + (map_.y.label.empty() ? 0 : label_font + 8);
  }
  const double bar_room = bar_gap + bar_width + 8 + colours.label_width() +
                          (map_.value.label.empty() ? 0 : label_font + 8) + 4;
  const Box plot = {left, top, std::max(map_.width - bar_room, left + 40), bottom};
  const Axis x = edge_axis(map_.x, map_.x_edges, AxisSide::horizontal, plot.left, plot.right);

  Svg svg(map_.width, bottom + x_axis_height(map_.x.label) + 4, map_.value.label);
  draw_cells(svg, bounds(map_.x_edges, columns_, x, plot.left, plot.right),
             map_.y_edges.empty() ? bounds({}, rows_, y, plot.top, plot.bottom)
                                  : bounds(map_.y_edges, rows_, y, plot.bottom, plot.top),
             colours);
  svg.rect(plot, "none", {rule_ink, 0.7});
  if (range.empty()) draw_no_data(svg, plot);
  if (with_line) draw_line(svg, x, y, plot);
  if (map_.x_edges.empty()) {
    draw_column_names(svg, bounds({}, columns_, x, plot.left, plot.right), plot);
  } else {
    draw_x_axis(svg, x, plot);
  }
  if (map_.y_edges.empty()) {
    draw_row_names(svg, bounds({}, rows_, y, plot.top, plot.bottom), plot);
  } else {
    draw_y_axis(svg, y, plot, false, y_axis_width(y));
  }
  if (!range.empty()) draw_colour_bar(svg, colours, plot.right + bar_gap);
  return svg.finish();
}

void HeatPlot::draw_cells(Svg& svg, const std::vector<double>& xs, const std::vector<double>& ys,
                          const Axis& colours) {
  const double length = colours.pixel_high() - colours.pixel_low();
  bool print = map_.print_values;
  double narrowest = 1e9;
  for (std::size_t i = 1; i < xs.size(); ++i) narrowest = std::min(narrowest, xs[i] - xs[i - 1]);
  for (std::size_t i = 1; i < ys.size(); ++i) {
    print = print && std::abs(ys[i] - ys[i - 1]) >= tick_font + 4;
  }
  // One number of decimals for all cells, by the greatest.
  double greatest = 0;
  for (const double v : values_)
    greatest = std::isnan(v) ? greatest : std::max(greatest, std::abs(v));
  const auto printed = [&](double v) {
    if (map_.value.per_cent) return fixed_number(100 * v, 0) + "%";
    if (greatest >= 1000 || greatest < 0.1) return compact_number(v, 2);
    return fixed_number(v, greatest < 10 ? 2 : greatest < 100 ? 1 : 0);
  };
  for (const double v : values_) {
    print = print && (std::isnan(v) || text_width(printed(v), tick_font) + 4 <= narrowest);
  }
  svg.open_turned();
  for (std::size_t row = 0; row < rows_; ++row) {
    for (std::size_t column = 0; column < columns_; ++column) {
      const double v = value(row, column);
      if (std::isnan(v)) continue;
      const double share = (colours.clamped_at(v) - colours.pixel_low()) / length;
      const std::string fill = colour_of(share);
      const Box box = {xs[column], std::min(ys[row], ys[row + 1]), xs[column + 1],
                       std::max(ys[row], ys[row + 1])};
      svg.open_group(compact_number(v));
      // A hairline of the same colour closes the seams that smoothing leaves between cells; cells
      // with values are parted instead.
      svg.rect(box, fill, print ? Stroke{"#fff", 1} : Stroke{fill, 0.4});
      if (print) {
        svg.text({(box.left + box.right) / 2, (box.top + box.bottom) / 2 + 0.35 * tick_font},
                 printed(v), {tick_font, Anchor::middle, ink_on(fill)});
      }
      svg.close();
    }
  }
  svg.close();
}

// Every name, or every second and so on where they would touch.
void HeatPlot::draw_column_names(Svg& svg, const std::vector<double>& xs, const Box& plot) const {
  double widest = 0;
  for (const std::string& name : map_.x_names) {
    widest = std::max(widest, std::min(text_width(name, tick_font), longest_heat_name));
  }
  const double cell = columns_ == 0 ? plot.width() : plot.width() / static_cast<double>(columns_);
  const auto stride = static_cast<std::size_t>(std::max(1.0, std::ceil((widest + 6) / cell)));
  for (std::size_t i = 0; i < columns_; i += stride) {
    svg.text({(xs[i] + xs[i + 1]) / 2, plot.bottom + tick_font + 6},
             fit_text(map_.x_names[i], tick_font, longest_heat_name),
             {tick_font, Anchor::middle, ink});
  }
  svg.text({(plot.left + plot.right) / 2, plot.bottom + x_axis_height(map_.x.label) - 4},
           map_.x.label, {label_font, Anchor::middle, ink});
}

void HeatPlot::draw_row_names(Svg& svg, const std::vector<double>& ys, const Box& plot) const {
  const double cell = rows_ == 0 ? plot.height() : plot.height() / static_cast<double>(rows_);
  const auto stride = static_cast<std::size_t>(std::max(1.0, std::ceil((tick_font + 3) / cell)));
  for (std::size_t i = 0; i < rows_; i += stride) {
    svg.text({plot.left - 6, (ys[i] + ys[i + 1]) / 2 + 0.35 * tick_font},
             fit_text(map_.y_names[i], tick_font, longest_heat_name),
             {tick_font, Anchor::end, ink});
  }
  if (map_.y.label.empty()) return;
  svg.text({label_font + 4, (plot.top + plot.bottom) / 2}, map_.y.label,
           {label_font, Anchor::middle, ink, false, true});
}

void HeatPlot::draw_colour_bar(Svg& svg, const Axis& colours, double left) const {
  const double bottom = colours.pixel_low(), top = colours.pixel_high();
  constexpr int slices = 64;
  // Each slice reaches down to the end under the next ones, so that no seams show.
  svg.open_turned();
  for (int i = slices - 1; i >= 0; --i) {
    const double high = bottom + (top - bottom) * (i + 1) / slices;
    svg.rect({left, high, left + bar_width, bottom}, colour_of((i + 0.5) / slices));
  }
  svg.close();
  svg.rect({left, top, left + bar_width, bottom}, "none", {rule_ink, 0.7});
  const double right = left + bar_width;
  for (const Tick& tick : colours.ticks()) {
    const double y = colours.at(tick.value);
    svg.line({right, y}, {right + (tick.label.empty() ? 2 : 4), y}, {ink, axis_width});
    if (tick.label.empty()) continue;
    svg.text({right + 7, y + 0.35 * tick_font}, tick.label, {tick_font});
  }
  if (map_.value.label.empty()) return;
  svg.text({right + 8 + colours.label_width() + label_font + 4, (top + bottom) / 2},
           map_.value.label, {label_font, Anchor::middle, ink, false, true});
}

// On a rim of paper, to be seen on light and dark cells.
void HeatPlot::draw_line(Svg& svg, const Axis& x, const Axis& y, const Box& plot) const {
  constexpr double radius = 3;
  const SeriesStyle key = {strong_ink, "", Marker::circle, true};
  std::vector<std::vector<Point>> runs(1);
  for (const Point& point : map_.line) {
    const bool shown = can_show(map_.x.scale, point.x) && can_show(map_.y.scale, point.y);
    if (shown) runs.back().push_back(point);
    if (!shown && !runs.back().empty()) runs.emplace_back();
  }
  svg.open_clip(plot);
  for (const Stroke& stroke : {Stroke{paper, 4}, Stroke{strong_ink, 1.5}}) {
    for (const auto& run : runs) {
      std::vector<Xy> joined;
      for (const Point& point : run) {
        joined.push_back({x.at(point.x), y.at(point.y)});
      }
      if (joined.size() > 1) svg.polyline(joined, stroke);
    }
  }
  for (const auto& run : runs) {
    for (const Point& point : run) {
      svg.open_group(compact_number(point.x) + ", " + compact_number(point.y));
      svg.circle({x.at(point.x), y.at(point.y)}, radius, paper, {strong_ink, 1.3});
      svg.close();
    }
  }
  svg.close();
  if (map_.line_name.empty()) return;
  draw_entry(svg, {map_.line_name, key}, {plot.left, plot.top - legend_row / 2 - 3}, plot.width());
}

}  // namespace

std::string to_svg(const HeatMap& map) { return HeatPlot(map).draw(); }

}  // namespace coppice::study
