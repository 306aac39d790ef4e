// Axes: which range of values is shown, where its ticks stand, and which pixel a value falls on.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

namespace coppice::study {

enum class Scale { linear, log2 };

/// What a caller says of an axis. Limits that are not given come from the data, rounded out to
/// ticks, as they always do on a log axis; those that are given hold all that is to be seen.
struct AxisSpec {
  std::string label = {};  ///< with its unit: "time per step (us)"
  Scale scale = Scale::linear;
  std::optional<double> low = {};
  std::optional<double> high = {};  ///< above low
  bool per_cent = false;            ///< values are shares of 1, ticks say per cent (linear axes)
  bool whole = false;               ///< ticks at whole numbers only (linear axes)
  /// Not empty: an axis of names, the first one leftmost or at the top. Name i has the values from
  /// i to i + 1.
  std::vector<std::string> names = {};
};

/// Whether a scale has a place for a value: finite, and on a log axis positive.
bool can_show(Scale scale, double value);

/// The range of what has to be shown. What an axis cannot show is passed over.
class DataRange {
 public:
  explicit DataRange(Scale scale) : scale_(scale) {}
  void include(double value);
  bool empty() const { return low_ > high_; }
  double low() const { return low_; }
  double high() const { return high_; }

 private:
  Scale scale_;
  double low_ = 1;
  double high_ = 0;
};

struct Tick {
  double value = 0;
  std::string label = {};
};

enum class AxisSide { horizontal, vertical };

class Axis {
 public:
  /// The low end of the axis lies at pixel_low, the high end at pixel_high; on a vertical axis of
  /// numbers that is less, for pixels count downwards. Labels of ticks keep apart.
  Axis(const AxisSpec& spec, const DataRange& data, AxisSide side, double pixel_low,
       double pixel_high);

  /// Pixel of a value; of the nearer end for values outside.
  double at(double value) const;
  /// Whether a value lies between the ends, but for rounding.
  bool covers(double value) const;

  const AxisSpec& spec() const { return spec_; }
  bool has_names() const { return !spec_.names.empty(); }
  double low() const { return low_; }
  double high() const { return high_; }
  /// Ascending, all within [low, high].
  const std::vector<Tick>& ticks() const { return ticks_; }
  /// Width of the widest tick label.
  double label_width() const { return label_width_; }

 private:
  double share_of(double value) const;
  bool labels_fit(AxisSide side) const;
  void choose_numbers(const DataRange& data, AxisSide side);
  void choose_names(std::size_t stride);
  void choose_linear(double low, double high, int intervals);
  void choose_binary(double low, double high, int stride);

  AxisSpec spec_;
  double pixel_low_, pixel_high_;
  double low_ = 0, high_ = 1;
  std::vector<Tick> ticks_;
  double label_width_ = 0;
};

}  // namespace coppice::study
