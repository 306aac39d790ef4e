#include "study/figures/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstdarg>
#include <cstdio>
#include <utility>

#include "base/utf8.h"

namespace coppice::study {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";

bool is_allowed(std::string_view sequence) {
  if (sequence.size() == 1) {
    const auto c = static_cast<unsigned char>(sequence[0]);
    return c >= 0x20 ? c != 0x7f : c == '\t' || c == '\n' || c == '\r';
  }
  return sequence != "\xef\xbf\xbe" && sequence != "\xef\xbf\xbf";
}

/// As std::to_chars prints it.
std::string printed_by_chars(const auto&... how) {
  std::array<char, 400> buffer;  // the largest double has 309 digits before its point
  return {buffer.data(), std::to_chars(buffer.data(), buffer.data() + buffer.size(), how...).ptr};
}

std::string printed(double value, std::chars_format format, int precision) {
  std::string number = printed_by_chars(value, format, precision);
  const bool is_zero = number.find_first_of("123456789") == std::string::npos;
  return is_zero && number.front() == '-' ? number.substr(1) : number;
}

// Thousandths of the font size.
int advance(std::string_view sequence) {
  if (sequence.size() > 1) return sequence.size() == 2 ? 600 : 1000;  // longer: mostly East Asian
  static constexpr std::array<std::pair<std::string_view, int>, 7> widths = {
      {{"ijl'|", 240},
       {" ftI.,:;!/\\[]", 280},
       {"r-()\"`{}*", 360},
       {"ckszvxyJ", 500},
       {"wNCRDHUBAKPSVXYE&", 722},
       {"GOQMm", 815},
       {"W%@", 950}}};
  const char c = sequence[0];
  for (const auto& [letters, width] : widths) {
    if (letters.find(c) != letters.npos) return width;
  }
  return c >= 'A' && c <= 'Z' ? 640 : 560;
}

template <typename Visit>
void for_each_sequence(std::string_view text, const Visit& visit) {
  while (!text.empty()) {
    const int length = utf8_sequence(text);
    const std::size_t taken = length > 0 ? static_cast<std::size_t>(length) : broken_utf8(text);
    visit(text.substr(0, taken), length > 0);
    text.remove_prefix(taken);
  }
}

}  // namespace

std::string escape_markup(std::string_view text) {
  static constexpr std::array<std::pair<std::string_view, std::string_view>, 5> references = {
      {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"\"", "&quot;"}, {"'", "&#39;"}}};
  std::string out;
  for_each_sequence(text, [&](std::string_view sequence, bool valid) {
    std::string_view written = valid && is_allowed(sequence) ? sequence : replacement;
    for (const auto& [character, reference] : references) {
      if (sequence == character) written = reference;
    }
    out += written;
  });
  return out;
}

std::string coordinate(double value) {
  if (!std::isfinite(value)) return "0";
  std::string number = printed(std::clamp(value, -1e6, 1e6), std::chars_format::fixed, 2);
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
  return number;
}

std::string compact_number(double value, int digits) {
  if (!std::isfinite(value)) return "-";
  // Up to six digits before the point are printed.
  const bool is_large = std::abs(value) >= std::pow(10.0, digits) - 0.5;
  if (std::abs(value) < 999999.5 && (is_large || value == std::round(value))) {
    return printed(value, std::chars_format::fixed, 0);
  }
  return printed(value, std::chars_format::general, digits);
}

std::string fixed(double value, int decimals) {
  return std::isfinite(value) ? printed(value, std::chars_format::fixed, decimals) : "-";
}

std::string grouped(std::int64_t count) {
  std::string text = printed_by_chars(count);
  const std::size_t first = text.front() == '-' ? 1 : 0;
  for (std::size_t at = text.size(); at > first + 3;) text.insert(at -= 3, ",");
  return text;
}

std::string number_text(double number) { return printed_by_chars(number); }

std::string exact(double value) {
  return std::isfinite(value) ? printed_by_chars(value, std::chars_format::general, 6) : "";
}

std::string percent(double part, double whole) {
  return whole > 0.0 ? fixed(100.0 * part / whole, 1) : "-";
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

double text_width(std::string_view text, double font_size) {
  int thousandths = 0;
  for_each_sequence(text,
                    [&](std::string_view sequence, bool) { thousandths += advance(sequence); });
  constexpr double fallback_margin = 1.05;
  return fallback_margin * font_size * thousandths / 1000;
}

std::string fit_text(std::string_view text, double font_size, double width) {
  if (text_width(text, font_size) <= width) return std::string(text);
  std::string out;
  bool full = false;
  for_each_sequence(text, [&](std::string_view sequence, bool) {
    std::string longer = out + std::string(sequence);
    full = full || text_width(longer + "…", font_size) > width;
    if (!full) out = std::move(longer);
  });
  return out + "…";
}

}  // namespace coppice::study
