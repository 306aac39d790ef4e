// Line charts: accepted length or speed-up against tree size, calibration curves.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "study/figures/axis.h"

namespace coppice::study {

/// A measured value and its interval, NaN where there is none. A point that the axes cannot show
/// (not finite, or not positive on a log axis) is left out and interrupts its line.
struct Point {
  double x = 0;
  double y = 0;
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
};

enum class SeriesKind {
  measured,  ///< solid, with markers
  ceiling,   ///< a bound such as the oracle's: dashed, without markers
};

struct Series {
  std::string name = {};
  std::vector<Point> points = {};  ///< in the order in which they are joined
  SeriesKind kind = SeriesKind::measured;
  /// Number of the style (style.h); not given: the series' place among the measured ones. Give it
  /// where one policy is to look alike in several figures.
  std::optional<std::size_t> style = {};
  bool open = false;  ///< markers are outlines, which tells two series of one style apart
};

enum class IntervalLook { bars, band };

struct ReferenceLine {
  enum class Kind { horizontal, diagonal } kind = Kind::horizontal;
  double at = 0;           ///< the height of a horizontal line; a diagonal is y = x
  std::string label = {};  ///< "plain decoding"
};

struct LineChart {
  std::string title = {};  ///< may be empty
  AxisSpec x = {};
  AxisSpec y = {};
  std::vector<Series> series = {};
  std::vector<ReferenceLine> references = {};
  IntervalLook intervals = IntervalLook::bars;
  /// Points of several series at one x stand side by side, a few pixels apart, so that none hides
  /// another's interval.
  bool side_by_side = false;
  double width = 600;   ///< pixels
  double height = 360;  ///< pixels, without a legend that has to go below the plot
};

/// The chart as an SVG document. Names stand at the ends of their lines where all lines end at the
/// right, else in a legend beside or below the plot; they never lie over data.
std::string to_svg(const LineChart& chart);

}  // namespace coppice::study
