// What stands around the data of a chart: axes with ticks and labels, a grid, and a legend.
#pragma once

#include <string>
#include <vector>

#include "study/figures/axis.h"
#include "study/figures/chart.h"
#include "study/figures/svg.h"

namespace coppice::study {

/// Height taken below the plot by ticks, and by the label if there is one.
double x_axis_height(const std::string& label);
/// Width taken left of the plot.
double y_axis_width(const Axis& axis);

/// Along the bottom of the box; along its left.
void draw_x_axis(Svg& svg, const Axis& axis, const Box& plot);
void draw_y_axis(Svg& svg, const Axis& axis, const Box& plot);
/// Faint lines behind points: at the ticks of y, along which values are compared.
void draw_grid(Svg& svg, const Axis& y, const Box& plot);

/// Height and drawing of a legend in columns of equal width, filled row by row; names are cut to
/// their room.
double legend_height(const std::vector<LegendEntry>& entries, double width);
void draw_legend(Svg& svg, const std::vector<LegendEntry>& entries, Xy top_left, double width);

}  // namespace coppice::study
