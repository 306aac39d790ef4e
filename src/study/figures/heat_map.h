// Heat maps: two-dimensional histograms, and tables of values by two categories.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "study/figures/axis.h"
#include "study/figures/line_chart.h"

namespace coppice::study {

enum class Normalise {
  none,
  by_column,  ///< each column sums to 1: the distribution of y given x (DySpec, figure 2)
};

/// Cells lie between edges, or belong to categories: give either the edges of an axis or its
/// names.
struct HeatMap {
  std::string title = {};  ///< may be empty
  AxisSpec x = {};         ///< limits are the edges' and need not be given
  AxisSpec y = {};
  std::vector<double> x_edges = {};       ///< [columns + 1], ascending
  std::vector<double> y_edges = {};       ///< [rows + 1], ascending, the lowest at the bottom
  std::vector<std::string> x_names = {};  ///< [columns], used where there are no x_edges
  std::vector<std::string> y_names = {};  ///< [rows], the first at the top
  /// [rows][columns], rows in the order of y_edges or y_names; NaN: empty.
  std::vector<double> cells = {};
  Normalise normalise = Normalise::none;
  bool zero_is_empty = false;  ///< counts: a cell where nothing fell is left white
  /// Axis of the colours: label, linear or log10, limits (not given: those of the cells).
  AxisSpec value = {};
  /// Colours part around this value, as for ratios around 1: as far above as below, but not below
  /// 0 where it is above. The scale is linear.
  std::optional<double> centre = {};
  bool print_values = false;  ///< in each cell, where all of them fit
  /// Drawn over the cells, such as the mean by column with its interval (axes with edges only).
  std::vector<Point> line = {};
  std::string line_name = {};
  double width = 520;   ///< pixels
  double height = 400;  ///< pixels
};

/// The map as an SVG document. Throws Error(usage) where sizes or edges do not fit together.
std::string to_svg(const HeatMap& map);

}  // namespace coppice::study
