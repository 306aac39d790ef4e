// The frame of a chart: axes with ticks and labels, a legend, and a word if there is no data.
#pragma once

#include <string>
#include <vector>

#include "study/figures/axis.h"
#include "study/figures/style.h"
#include "study/figures/svg.h"

namespace coppice::study {

/// Height taken below the plot by ticks, and by the label where there is one.
double x_axis_height(const std::string& label);
/// Width taken left of the plot.
double y_axis_width(const Axis& axis);

/// Along the bottom of the box. `with_labels` false: ticks only, for panels above others.
void draw_x_axis(Svg& svg, const Axis& axis, const Box& plot, bool with_labels = true);
/// Along the left of the box, with faint lines across it at labelled ticks if asked. The label
/// stands `width` from the plot: the y_axis_width of the widest of several axes.
void draw_y_axis(Svg& svg, const Axis& axis, const Box& plot, bool with_grid, double width);
void draw_no_data(Svg& svg, const Box& plot);

struct LegendEntry {
  std::string name = {};
  SeriesStyle style = {};
  std::string_view fill = {};  ///< not empty: a box of this colour instead of a line
};

/// Pixels from the start of an entry's key to the start of its name.
inline constexpr double legend_key = 32;
inline constexpr double legend_row = 18;

/// Draws an entry with the middle of its line at `at.y`; the name is cut at max_width pixels.
void draw_entry(Svg& svg, const LegendEntry& entry, Xy at, double max_width);

/// Width of the widest entry, its key included.
double widest_entry(const std::vector<LegendEntry>& entries);

/// Height and drawing of a legend in columns of equal width, filled row by row.
double legend_height(const std::vector<LegendEntry>& entries, double width);
void draw_legend(Svg& svg, const std::vector<LegendEntry>& entries, Xy top_left, double width);

/// Moves labels wanted at these heights apart, to at least `gap` pixels, as little as possible (in
/// squares) and within [top, bottom]; where they cannot all fit there, they run over the bottom.
/// Answers in the order given.
std::vector<double> spread_labels(const std::vector<double>& wanted, double gap, double top,
                                  double bottom);

}  // namespace coppice::study
