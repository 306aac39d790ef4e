#include "study/number_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "base/error.h"
#include "study/figures/text.h"

namespace coppice::study {
namespace {

std::string with_sign(double value, int digits) {
  const std::string text = fixed(value, digits);
  return std::isfinite(value) && text.front() != '-' ? "+" + text : text;
}

template <typename Print>
std::string interval(const Estimate& estimate, const Print& print) {
  if (!std::isfinite(estimate.low) || !std::isfinite(estimate.high)) return print(estimate.value);
  return cat(print(estimate.value), " [", print(estimate.low), ", ", print(estimate.high), "]");
}

}  // namespace

std::string number_text(double number) {
  std::array<char, 32> text{};
  const auto end = std::to_chars(text.data(), text.data() + text.size(), number).ptr;
  return std::string(text.data(), end);
}

std::string line(const char* format, ...) {
  std::va_list values, again;
  va_start(values, format);
  va_copy(again, values);
  const int length = std::vsnprintf(nullptr, 0, format, values);
  va_end(values);
  std::string text(length > 0 ? static_cast<std::size_t>(length) : 0, '\0');
  std::vsnprintf(text.data(), text.size() + 1, format, again);
  va_end(again);
  return text;
}

std::string fixed(double value, int digits) {
  return std::isfinite(value) ? fixed_number(value, digits) : "-";
}

std::string with_interval(const Estimate& estimate, int digits) {
  return interval(estimate, [&](double value) { return fixed(value, digits); });
}

std::string with_interval(const Estimate& estimate, int digits, bool of_two_runs) {
  return cat(with_interval(estimate, digits), of_two_runs ? " *" : "");
}

std::string signed_interval(const Estimate& estimate, int digits) {
  return interval(estimate, [&](double value) { return with_sign(value, digits); });
}

std::string p_text(double p) { return p < 0.001 ? "<0.001" : fixed(p, 3); }

std::string exact(double value) {
  if (!std::isfinite(value)) return {};
  std::array<char, 64> text{};
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value, std::chars_format::general, 6)
          .ptr;
  return std::string(text.data(), end);
}

std::string percent(double part, double whole) {
  return whole > 0.0 ? fixed(100.0 * part / whole, 1) : "-";
}

}  // namespace coppice::study
