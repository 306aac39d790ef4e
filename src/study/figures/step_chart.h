// What happened step by step in one generation: tree size and accepted tokens (DySpec, figure 5).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace coppice::study {

/// One value per step, from the first step on; NaN leaves a gap.
struct StepTrace {
  std::string name = {};  ///< named in the legend where a panel has several
  std::vector<double> values = {};
  std::optional<std::size_t> style = {};  ///< as in Series
};

struct StepPanel {
  std::string y_label = {};  ///< "tree size (tokens)"
  std::vector<StepTrace> traces = {};
};

struct StepChart {
  std::string title = {};  ///< may be empty
  std::string x_label = "step";
  std::vector<StepPanel> panels = {};  ///< stacked, the first at the top, over one axis of steps
  double width = 640;                  ///< pixels
  double panel_height = 150;           ///< pixels
};

/// The chart as an SVG document, each trace with its mean. Steps count from 1. Where steps are
/// narrower than a pixel, the range of each pixel's values is shaded and their mean drawn.
std::string to_svg(const StepChart& chart);

}  // namespace coppice::study
