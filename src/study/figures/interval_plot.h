// Forest plots: estimates with their intervals, row under row, against a value that means "none".
#pragma once

#include <limits>
#include <string>
#include <vector>

#include "study/figures/axis.h"

namespace coppice::study {

struct IntervalRow {
  std::string group = {};  ///< neighbours of one group stand under its name; may be empty
  std::string label = {};  ///< "dyspec against chain"
  double value = 0;
  double low = std::numeric_limits<double>::quiet_NaN();   ///< NaN: no interval
  double high = std::numeric_limits<double>::quiet_NaN();  ///< NaN: no interval
  std::string note = {};                                   ///< written at the right, "p = 0.004"
  bool clear = false;                                      ///< filled marker, else an outline
};

struct IntervalPlot {
  std::string title = {};  ///< may be empty
  AxisSpec x = {};
  double none = 0;  ///< where a line marks that there is no difference
  std::vector<IntervalRow> rows = {};
  double width = 640;  ///< pixels; the height follows from the number of rows
};

/// The plot as an SVG document. A row whose value the axis cannot show has its names and note only.
std::string to_svg(const IntervalPlot& plot);

}  // namespace coppice::study
