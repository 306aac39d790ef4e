#include "study/number_text.h"

#include <array>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>

#include "base/error.h"

namespace coppice::study {
namespace {

template <typename Print>
std::string interval(const Estimate& estimate, const Print& print) {
  if (!std::isfinite(estimate.low) || !std::isfinite(estimate.high)) return print(estimate.value);
  return cat(print(estimate.value), " [", print(estimate.low), ", ", print(estimate.high), "]");
}

/// As std::to_chars prints it.
std::string printed_by_chars(const auto&... how) {
  std::array<char, 64> text{};
  return {text.data(), std::to_chars(text.data(), text.data() + text.size(), how...).ptr};
}

}  // namespace

std::string number_text(double number) { return printed_by_chars(number); }

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

std::string with_interval(const Estimate& estimate, int digits, bool of_two_runs) {
  return interval(estimate, [&](double value) { return fixed(value, digits); }) +
         (of_two_runs ? " *" : "");
}

std::string signed_interval(const Estimate& estimate, int digits) {
  return interval(estimate, [&](double value) {
    const std::string text = fixed(value, digits);
    return text.front() == '-' ? text : "+" + text;
  });
}

std::string p_text(double p) { return p < 0.001 ? "<0.001" : fixed(p, 3); }

std::string exact(double value) {
  return std::isfinite(value) ? printed_by_chars(value, std::chars_format::general, 6) : "";
}

std::string percent(double part, double whole) {
  return whole > 0.0 ? fixed(100.0 * part / whole, 1) : "-";
}

}  // namespace coppice::study
