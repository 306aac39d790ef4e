// The charts: structs of data, each with a to_svg() that draws it.
#pragma once

#include <cstddef>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "study/figures/axis.h"

namespace coppice::study {

// Line charts: accepted length or speed-up against tree size, calibration curves.

/// A measured value and its interval, NaN for none. A point that the axes cannot show (not finite,
/// or not positive on a log axis) is left out and interrupts its line.
struct Point {
  double x = 0;
  double y = 0;
  double low = std::numeric_limits<double>::quiet_NaN();
  double high = std::numeric_limits<double>::quiet_NaN();
};

enum class SeriesKind {
  measured,  ///< solid, with markers
  ceiling,   ///< a bound such as the oracle's: dashed, without markers and intervals
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

struct ReferenceLine {
  enum class Kind { horizontal, diagonal } kind = Kind::horizontal;
  double at = 0;           ///< the height of a horizontal line; a diagonal is y = x
  std::string label = {};  ///< "plain decoding"
};

struct LineChart {
  AxisSpec x = {};
  AxisSpec y = {};
  std::vector<Series> series = {};
  std::vector<ReferenceLine> references = {};
  /// Points of several series at one x stand side by side, a few pixels apart, so that none hides
  /// another's interval.
  bool side_by_side = false;
};

/// The chart as an SVG document. Names stand at the ends of their lines where all lines end at the
/// right, else in a legend beside or below the plot; they never lie over data.
std::string to_svg(const LineChart& chart);

// Heat maps: two-dimensional histograms, and tables of values by two categories.

struct HeatMap {
  std::string x_label = {}, y_label = {};
  /// Cells of a histogram lie between these edges, ascending, the same on both axes, the lowest at
  /// the bottom; [cells of a side + 1]. Each column sums to 1 there: the distribution of y given x
  /// (DySpec, figure 2).
  std::vector<double> edges = {};
  // Without edges cells belong to categories:
  std::vector<std::string> x_names = {};  ///< [columns]
  std::vector<std::string> y_names = {};  ///< [rows], the first at the top
  /// [rows][columns], rows in the order of the edges or of y_names; NaN: empty.
  std::vector<double> cells = {};
  bool zero_is_empty = false;  ///< counts: a cell where nothing fell is left white
  /// Axis of the colours: label, limits (not given: those of the cells). Linear.
  AxisSpec value = {};
  /// Colours part around this value, as for ratios around 1: as far above as below, but not below
  /// 0 where it is above.
  std::optional<double> centre = {};
  bool print_values = false;  ///< in each cell, where all of them fit
  /// Drawn over a histogram's cells: the mean by column. Without intervals.
  std::vector<Point> line = {};
  std::string line_name = {};
  double width = 520;   ///< pixels
  double height = 400;  ///< pixels
};

/// The map as an SVG document.
std::string to_svg(const HeatMap& map);

// Stacked bars, each 100 per cent long: where the time of each setting goes (DySpec, figure 4).

/// One setting. Neighbours of the same group stand together under one name.
struct Bar {
  std::string group = {};          ///< "dyspec"
  std::string label = {};          ///< "64"; may be empty
  std::vector<double> parts = {};  ///< one for each part's name, none negative
  std::string note = {};           ///< written behind the bar, "812 us"
};

struct StackedBars {
  std::string value_label = {};  ///< "share of time"
  std::vector<std::string> parts = {};
  std::vector<Bar> bars = {};
};

/// The bars as an SVG document.
std::string to_svg(const StackedBars& chart);

// Forest plots: estimates with their intervals, row under row, against a value that means "none".

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
  AxisSpec x = {};
  double none = 0;  ///< where a line marks that there is no difference
  std::vector<IntervalRow> rows = {};
};

/// The plot as an SVG document. A row whose value the axis cannot show has its names and note only.
std::string to_svg(const IntervalPlot& plot);

// What happened step by step in one generation: tree size and accepted tokens (DySpec, figure 5).

struct StepPanel {
  std::string y_label = {};         ///< "tree size (tokens)"
  std::vector<double> values = {};  ///< one per step, from the first step on
  std::size_t style = 0;            ///< as in Series
};

struct StepChart {
  std::vector<StepPanel> panels = {};  ///< stacked, the first at the top, over one axis of steps
};

/// The chart as an SVG document, each panel with its mean. Steps count from 1. Where steps are
/// narrower than a pixel, the range of each pixel's values is shaded and their mean drawn.
std::string to_svg(const StepChart& chart);

}  // namespace coppice::study
