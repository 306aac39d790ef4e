// Charts: one description of axes and of what lies between them, and one way to draw it.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "study/figures/axis.h"
#include "study/figures/svg.h"

namespace coppice::study {

/// A measured value and the interval of y, NaN for none. A point that the axes cannot show (not
/// finite, or not positive on a log axis) is left out and interrupts its line.
struct Point {
  double x = 0;
  double y = 0;
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
  bool starred = false;  ///< a star stands above it, which the caption explains
};

struct Series {
  std::string name = {};           ///< for the legend; may be empty
  std::vector<Point> points = {};  ///< in the order in which they are joined
  /// Not given: by the series' place. Give it where one policy is to look alike in several figures.
  std::optional<SeriesStyle> style = {};
};

struct ReferenceLine {
  std::optional<double> at = {};  ///< the y that the line stands for; none: the diagonal y = x
  std::string label = {};         ///< "plain decoding"; may be empty
};

/// A rectangle between values of the axes.
struct Tile {
  double left = 0, right = 0, low = 0, high = 0;
  double value = std::numeric_limits<double>::quiet_NaN();  ///< on the scale of colours
  std::string_view fill = {};  ///< not empty: this colour, whatever the value
  std::string words = {};      ///< printed where they fit
  std::string tooltip = {};
};

/// A name in the legend, beside those of series and references.
struct LegendEntry {
  std::string name = {};
  SeriesStyle style = {};
  std::string_view fill = {};  ///< not empty: a box of this colour instead of a line
};

struct Chart {
  AxisSpec x = {};
  AxisSpec y = {};
  std::vector<Series> series = {};
  std::vector<ReferenceLine> references = {};
  std::vector<Tile> tiles = {};
  /// Tiles' values by colour, with a bar at the right, if any tile has a value, that says which:
  /// its label, and its limits (not given: those of the tiles).
  std::optional<AxisSpec> colours = {};
  std::vector<LegendEntry> legend = {};
  /// Points of several series at one x stand side by side, a few pixels apart, so that none hides
  /// another's interval.
  bool side_by_side = false;
  std::string note = {};  ///< a line at the bottom, cut to its room: "n: 24 prompts"; may be empty
};

/// The tiles of a table of values, [rows][columns]; NaN: none. Each is 1 wide and high, the first
/// at 0.
std::vector<Tile> tiles_of(std::span<const double> values, std::size_t columns);

/// The chart as an SVG document; names stand below the plot.
std::string to_svg(const Chart& chart);

}  // namespace coppice::study
