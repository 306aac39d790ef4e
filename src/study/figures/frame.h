// The frame of a chart: axes with ticks and labels, a title, and a word where there is no data.
#pragma once

#include <string>

#include "study/figures/axis.h"
#include "study/figures/svg.h"

namespace coppice::study {

/// Height taken by a title (0 where there is none).
double title_height(const std::string& title);
/// Height taken below the plot by ticks, and by the label where there is one.
double x_axis_height(const std::string& label);
/// Width taken left of the plot.
double y_axis_width(const Axis& axis);

void draw_title(Svg& svg, const std::string& title, double width);
/// Along the bottom of the box. `with_labels` false: ticks only, for panels above others.
void draw_x_axis(Svg& svg, const Axis& axis, const Box& plot, bool with_labels = true);
/// Along the left of the box, with faint lines across it at labelled ticks if asked. The label
/// stands `width` from the plot: the y_axis_width of the widest of several axes.
void draw_y_axis(Svg& svg, const Axis& axis, const Box& plot, bool with_grid, double width);
void draw_no_data(Svg& svg, const Box& plot);

}  // namespace coppice::study
