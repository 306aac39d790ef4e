// Stacked bars: where the time of each setting goes (DySpec, figure 4).
#pragma once

#include <string>
#include <vector>

namespace coppice::study {

/// One setting. Neighbours of the same group stand together under one name.
struct Bar {
  std::string group = {};          ///< "dyspec"
  std::string label = {};          ///< "64"; may be empty
  std::vector<double> parts = {};  ///< one for each part's name; not finite or negative counts as 0
  std::string note = {};  ///< written behind the bar, "812 us"; not given: the sum (absolute bars)
};

enum class BarLength {
  shares,    ///< every bar is 100 per cent long
  absolute,  ///< bars are as long as their parts' sum
};

struct StackedBars {
  std::string title = {};        ///< may be empty
  std::string value_label = {};  ///< with its unit: "time per step (us)", "share of time"
  std::vector<std::string> parts = {};
  std::vector<Bar> bars = {};
  BarLength length = BarLength::shares;
  double width = 640;  ///< pixels; the height follows from the number of bars
};

/// The bars as an SVG document. Throws Error(usage) where a bar has more parts than there are
/// names.
std::string to_svg(const StackedBars& chart);

}  // namespace coppice::study
