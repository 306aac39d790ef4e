#include "study/figures/axis.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "study/figures/text.h"

namespace coppice::study {

/// What has to be shown, and which ends a caller has fixed.
struct Axis::Range {
  double low, high;
  bool low_fixed, high_fixed;
};

namespace {

constexpr double rounding_slack = 1e-9;  // of one tick: 0.3 / 0.1 counts as 3

double round_down(double ticks) { return std::floor(ticks + rounding_slack); }
double round_up(double ticks) { return std::ceil(ticks - rounding_slack); }

// The smallest of 1, 2 and 5 times a power of ten that is not below.
double nice_step(double least) {
  const double decade = std::pow(10, std::floor(std::log10(least)));
  for (const double mantissa : {1.0, 2.0, 5.0}) {
    if (mantissa * decade >= least * (1 - rounding_slack)) return mantissa * decade;
  }
  return 10 * decade;
}

std::string linear_label(double value, double step, double greatest, const AxisSpec& spec) {
  if (spec.per_cent) {
    value *= 100;
    step *= 100;
    greatest *= 100;
  }
  std::string label;
  if (value != 0 && (greatest >= 1e6 || step < 1e-4)) {
    const double digits = std::ceil(std::log10(greatest / step) + rounding_slack) + 1;
    label = compact_number(value, static_cast<int>(std::clamp(digits, 1.0, 15.0)));
  } else {
    const double decimals = std::max(0.0, -std::floor(std::log10(step) + rounding_slack));
    label = fixed_number(value, value == 0 && step < 1e-4 ? 0 : static_cast<int>(decimals));
  }
  return spec.per_cent ? label + "%" : label;
}

}  // namespace

bool can_show(Scale scale, double value) {
  return std::isfinite(value) && (scale == Scale::linear || value > 0);
}

void DataRange::include(double value) {
  if (!can_show(scale_, value)) return;
  const bool first = empty();
  low_ = first ? value : std::min(low_, value);
  high_ = first ? value : std::max(high_, value);
}

Axis::Axis(const AxisSpec& spec, const DataRange& data, AxisSide side, double pixel_low,
           double pixel_high, double font_size)
    : label_(spec.label),
      scale_(spec.scale),
      pixel_low_(pixel_low),
      pixel_high_(pixel_high),
      font_size_(font_size) {
  const bool is_log = scale_ != Scale::linear;
  Range range = {data.low(), data.high(), false, false};
  if (data.empty()) range = {is_log ? 1.0 : 0.0, is_log ? 2.0 : 1.0, false, false};
  if (spec.low && can_show(scale_, *spec.low)) {
    range.low = *spec.low;
    range.low_fixed = true;
  }
  if (spec.high && can_show(scale_, *spec.high) && (!range.low_fixed || *spec.high > range.low)) {
    range.high = *spec.high;
    range.high_fixed = true;
  }
  if (range.high < range.low) {  // all data beyond a fixed end
    if (range.high_fixed) {
      range.low = range.high;
    } else {
      range.high = range.low;
    }
  }
  if (range.low == range.high && !is_log) {
    const double pad = range.low == 0 || spec.whole ? 1 : 0.1 * std::abs(range.low);
    if (!range.low_fixed && range.low != 0) range.low -= pad;
    if (!range.high_fixed) range.high += pad;
    if (range.low == range.high) range.low -= pad;
  }

  const double length = std::abs(pixel_high - pixel_low);
  if (scale_ == Scale::linear) {
    const double wanted = length / (side == AxisSide::horizontal ? 50 : 32);
    for (int n = static_cast<int>(std::clamp(wanted, 1.0, 10.0)); n >= 1; --n) {
      choose_linear(spec, range, n);
      if (labels_fit(side)) break;
    }
  } else {
    for (int stride = 1; stride <= 2048; ++stride) {
      choose_binary(range, stride);
      if (labels_fit(side)) break;
    }
  }
  const auto labelled = [](const Tick& tick) { return !tick.label.empty(); };
  if (std::none_of(ticks_.begin(), ticks_.end(), labelled)) {
    ticks_ = {{low_, compact_number(low_)}, {high_, compact_number(high_)}};
  }
  for (const Tick& tick : ticks_) {
    label_width_ = std::max(label_width_, text_width(tick.label, font_size_));
  }
}

double Axis::warped(double value) const {
  return scale_ == Scale::linear ? value : std::log2(value);
}

double Axis::at(double value) const {
  if (!can_show(scale_, value)) return std::numeric_limits<double>::quiet_NaN();
  // Halves, so that a span of nearly all doubles does not overflow.
  const double share =
      (warped(value) / 2 - warped(low_) / 2) / (warped(high_) / 2 - warped(low_) / 2);
  return pixel_low_ + share * (pixel_high_ - pixel_low_);
}

bool Axis::covers(double value) const {
  const double share = (at(value) - pixel_low_) / (pixel_high_ - pixel_low_);
  return share >= -rounding_slack && share <= 1 + rounding_slack;
}

double Axis::clamped_at(double value) const {
  if (std::isnan(value)) return at(value);
  return at(std::clamp(value, low_, high_));
}

bool Axis::labels_fit(AxisSide side) const {
  double last_at = 0, last_width = -1;
  for (const Tick& tick : ticks_) {
    if (tick.label.empty()) continue;
    const double here = at(tick.value);
    const double width = text_width(tick.label, font_size_);
    const double needed =
        side == AxisSide::horizontal ? (width + last_width) / 2 + 8 : 1.5 * font_size_;
    if (last_width >= 0 && std::abs(here - last_at) < needed) return false;
    last_at = here;
    last_width = width;
  }
  return true;
}

void Axis::choose_linear(const AxisSpec& spec, Range range, int intervals) {
  ticks_.clear();
  low_ = range.low;
  high_ = range.high;
  double step = nice_step(std::max((range.high / intervals) - (range.low / intervals),
                                   std::numeric_limits<double>::min() * 1e6));
  if (spec.whole) step = std::max(step, 1.0);
  const double first = range.low_fixed ? round_up(low_ / step) : round_down(low_ / step);
  const double last = range.high_fixed ? round_down(high_ / step) : round_up(high_ / step);
  if (!std::isfinite(first * step) || !std::isfinite(last * step) || last - first > 100) return;
  if (!range.low_fixed) low_ = first * step;
  if (!range.high_fixed) high_ = last * step;
  if (!(low_ < high_)) {
    low_ = range.low;
    high_ = range.high;
    return;
  }
  const double greatest = std::max(std::abs(first), std::abs(last)) * step;
  for (int i = 0; first + i <= last; ++i) {
    const double value = (first + i) * step;
    ticks_.push_back({value, linear_label(value, step, greatest, spec)});
  }
}

void Axis::choose_binary(const Range& range, int stride) {
  ticks_.clear();
  int first = static_cast<int>(round_down(std::log2(range.low)));
  int last = static_cast<int>(round_up(std::log2(range.high)));
  if (first == last) {
    if (!range.low_fixed) --first;
    if (!range.high_fixed || range.low_fixed) ++last;
  }
  // Whole strides between the ends, so that the last tick covers the data too.
  last += (stride - (last - first) % stride) % stride;
  low_ = range.low_fixed ? range.low : std::exp2(first);
  high_ = range.high_fixed && range.high > low_ ? range.high : std::exp2(last);
  for (int e = first; e <= last; e += stride) {
    const double value = std::exp2(e);
    if (!covers(value)) continue;
    const bool as_powers = (first < -4 || last >= 20) && e != 0;
    ticks_.push_back({value, as_powers ? power(2, e) : compact_number(value, 7)});
  }
}

}  // namespace coppice::study
