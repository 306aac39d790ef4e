// Axes: which range of values is shown, where its ticks stand, and which pixel a value falls on.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace coppice::study {

enum class Scale { linear, log2 };

/// What a caller says of an axis. Limits that are not given come from the data, rounded out to
/// ticks.
struct AxisSpec {
  std::string label = {};  ///< with its unit: "time per step (us)"
  Scale scale = Scale::linear;
  std::optional<double> low = {};   ///< on a log axis above 0, else it counts as not given
  std::optional<double> high = {};  ///< above low, else it counts as not given
  bool per_cent = false;            ///< values are shares of 1, ticks say per cent (linear axes)
  bool whole = false;               ///< ticks at whole numbers only (linear axes)
};

/// The range of what has to be shown. What an axis cannot show (not finite, or not positive on a
/// log axis) is passed over.
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

/// Whether a scale has a place for a value.
bool can_show(Scale scale, double value);

struct Tick {
  double value = 0;
  std::string label = {};  ///< empty: a minor tick
};

enum class AxisSide { horizontal, vertical };

class Axis {
 public:
  /// The low end of the axis lies at pixel_low, the high end at pixel_high (less than pixel_low on
  /// a vertical axis, for pixels count downwards). Labels of ticks keep apart at font_size.
  Axis(const AxisSpec& spec, const DataRange& data, AxisSide side, double pixel_low,
       double pixel_high, double font_size);

  /// Pixel of a value, beyond the ends for values outside. NaN for what the scale cannot show.
  double at(double value) const;
  /// As at(), but values that the scale cannot show or that lie outside go to the nearer end.
  double clamped_at(double value) const;
  /// Whether a value lies between the ends, but for rounding.
  bool covers(double value) const;

  Scale scale() const { return scale_; }
  double low() const { return low_; }
  double high() const { return high_; }
  double pixel_low() const { return pixel_low_; }
  double pixel_high() const { return pixel_high_; }
  const std::string& label() const { return label_; }
  /// Ascending, all within [low, high].
  const std::vector<Tick>& ticks() const { return ticks_; }
  /// Width of the widest tick label.
  double label_width() const { return label_width_; }

 private:
  struct Range;
  bool labels_fit(AxisSide side) const;
  void choose_linear(const AxisSpec& spec, Range range, int intervals);
  void choose_binary(const Range& range, int stride);
  double warped(double value) const;

  std::string label_;
  Scale scale_;
  double pixel_low_, pixel_high_, font_size_;
  double low_ = 0, high_ = 1;
  std::vector<Tick> ticks_;
  double label_width_ = 0;
};

}  // namespace coppice::study
