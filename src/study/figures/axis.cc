#include "study/figures/axis.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "study/figures/svg.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

constexpr double rounding_slack = 1e-9;  // of one tick: 0.3 / 0.1 counts as 3

double round_down(double ticks) { return std::floor(ticks + rounding_slack); }
double round_up(double ticks) { return std::ceil(ticks - rounding_slack); }

constexpr double longest_name = 260;  // pixels

// The smallest of 1, 2 and 5 times a power of ten that is not below.
double nice_step(double least) {
  const double decade = std::pow(10, std::floor(std::log10(least)));
  for (const double mantissa : {1.0, 2.0, 5.0}) {
    if (mantissa * decade >= least * (1 - rounding_slack)) return mantissa * decade;
  }
  return 10 * decade;
}

std::string linear_label(double value, double step, double greatest, bool per_cent) {
  const double unit = per_cent ? 100 : 1;
  value *= unit;
  step *= unit;
  greatest *= unit;
  std::string label;
  if (value != 0 && (greatest >= 1e6 || step < 1e-4)) {
    const double digits = std::ceil(std::log10(greatest / step) + rounding_slack) + 1;
    label = compact_number(value, static_cast<int>(std::clamp(digits, 1.0, 15.0)));
  } else {
    const double decimals = std::max(0.0, -std::floor(std::log10(step) + rounding_slack));
    label = fixed(value, value == 0 && step < 1e-4 ? 0 : static_cast<int>(decimals));
  }
  return per_cent ? label + "%" : label;
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
           double pixel_high)
    : spec_(spec), pixel_low_(pixel_low), pixel_high_(pixel_high) {
  if (!spec.names.empty()) {
    high_ = static_cast<double>(spec.names.size());
    for (std::size_t stride = 1; ticks_.empty() || !labels_fit(side); ++stride) {
      choose_names(stride);
    }
  } else {
    choose_numbers(data, side);
  }
  for (const Tick& tick : ticks_) {
    label_width_ = std::max(label_width_, text_width(tick.label, tick_font));
  }
}

void Axis::choose_numbers(const DataRange& data, AxisSide side) {
  const AxisSpec& spec = spec_;
  const bool is_log = spec.scale == Scale::log2;
  double low = spec.low.value_or(!data.empty() ? data.low() : is_log ? 1 : 0);
  double high = spec.high.value_or(!data.empty() ? data.high() : is_log ? 2 : 1);
  if (low == high && !is_log) {
    const double pad = low == 0 || spec.whole ? 1 : 0.1 * std::abs(low);
    if (!spec.low && low != 0) low -= pad;
    if (!spec.high) high += pad;
    if (low == high) low -= pad;
  }
  if (is_log) {
    for (int stride = 1; stride == 1 || (stride <= 2048 && !labels_fit(side)); ++stride) {
      choose_binary(low, high, stride);
    }
  } else {
    const double wanted =
        std::abs(pixel_high_ - pixel_low_) / (side == AxisSide::horizontal ? 50 : 32);
    for (int n = static_cast<int>(std::clamp(wanted, 1.0, 10.0)); n >= 1; --n) {
      choose_linear(low, high, n);
      if (labels_fit(side)) break;
    }
  }
  if (ticks_.empty()) ticks_ = {{low_, compact_number(low_)}, {high_, compact_number(high_)}};
}

// Returns the share of the way from the low end to the high one.
double Axis::share_of(double value) const {
  const auto warped = [&](double v) { return spec_.scale == Scale::linear ? v : std::log2(v); };
  return (warped(value) - warped(low_)) / (warped(high_) - warped(low_));
}

double Axis::at(double value) const {
  if (std::isnan(value)) return value;
  const double inside = std::clamp(value, low_, high_);
  return pixel_low_ + share_of(inside) * (pixel_high_ - pixel_low_);
}

bool Axis::covers(double value) const {
  if (!can_show(spec_.scale, value)) return false;
  const double share = share_of(value);
  return share >= -rounding_slack && share <= 1 + rounding_slack;
}

bool Axis::labels_fit(AxisSide side) const {
  double last_at = 0, last_width = -1;
  for (const Tick& tick : ticks_) {
    const double here = at(tick.value);
    const double width = text_width(tick.label, tick_font);
    const double needed =
        side == AxisSide::horizontal ? (width + last_width) / 2 + 8 : 1.5 * tick_font;
    if (last_width >= 0 && std::abs(here - last_at) < needed) return false;
    last_at = here;
    last_width = width;
  }
  return true;
}

void Axis::choose_names(std::size_t stride) {
  ticks_.clear();
  for (std::size_t i = 0; i < spec_.names.size(); i += stride) {
    ticks_.push_back(
        {static_cast<double>(i) + 0.5, fit_text(spec_.names[i], tick_font, longest_name)});
  }
}

void Axis::choose_linear(double low, double high, int intervals) {
  ticks_.clear();
  low_ = low;
  high_ = high;
  double step = nice_step((high / intervals) - (low / intervals));
  if (spec_.whole) step = std::max(step, 1.0);
  const double first = spec_.low ? round_up(low / step) : round_down(low / step);
  const double last = spec_.high ? round_down(high / step) : round_up(high / step);
  if (!std::isfinite(first * step) || !std::isfinite(last * step) || last - first > 100) return;
  if (!spec_.low) low_ = first * step;
  if (!spec_.high) high_ = last * step;
  const double greatest = std::max(std::abs(first), std::abs(last)) * step;
  for (int i = 0; first + i <= last; ++i) {
    const double value = (first + i) * step;
    ticks_.push_back({value, linear_label(value, step, greatest, spec_.per_cent)});
  }
}

void Axis::choose_binary(double low, double high, int stride) {
  ticks_.clear();
  int first = static_cast<int>(round_down(std::log2(low)));
  int last = static_cast<int>(round_up(std::log2(high)));
  if (first == last) --first, ++last;
  // Whole strides between the ends, so that the last tick covers the data too.
  last += (stride - (last - first) % stride) % stride;
  low_ = std::exp2(first);
  high_ = std::exp2(last);
  for (int e = first; e <= last; e += stride) {
    const double value = std::exp2(e);
    const bool as_power = (first < -4 || last >= 20) && e != 0;
    ticks_.push_back({value, as_power ? cat("2^", e) : compact_number(value)});
  }
}

}  // namespace coppice::study
