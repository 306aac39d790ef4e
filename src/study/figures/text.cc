#include "study/figures/text.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>
#include <cstddef>
#include <utility>

#include "base/utf8.h"

namespace coppice::study {
namespace {

constexpr std::string_view replacement = "\xef\xbf\xbd";
constexpr std::string_view missing = "–";

bool is_allowed(std::string_view sequence) {
  if (sequence.size() == 1) {
    const auto c = static_cast<unsigned char>(sequence[0]);
    return c >= 0x20 ? c != 0x7f : c == '\t' || c == '\n' || c == '\r';
  }
  return sequence != "\xef\xbf\xbe" && sequence != "\xef\xbf\xbf";
}

std::string printed(double value, std::chars_format format, int precision) {
  std::array<char, 400> buffer;  // the largest double has 309 digits before its point
  const auto end =
      std::to_chars(buffer.data(), buffer.data() + buffer.size(), value, format, precision);
  return {buffer.data(), end.ptr};
}

void trim_zeros(std::string& number) {
  if (number.find('.') == std::string::npos) return;
  number.erase(number.find_last_not_of('0') + 1);
  if (number.back() == '.') number.pop_back();
}

std::string without_negative_zero(std::string number) {
  const bool is_zero = number.find_first_of("123456789") == std::string::npos;
  return is_zero && number.front() == '-' ? number.substr(1) : number;
}

// Thousandths of the font size.
int advance(std::string_view sequence) {
  if (sequence.size() > 1) {
    if (sequence == "…") return 1000;
    const auto lead = static_cast<unsigned char>(sequence[0]);
    if (sequence.size() == 2)
      return sequence == "¹" || sequence == "²" || sequence == "³" ? 360 : 600;
    if (lead == 0xe2) return sequence[1] == '\x81' ? 360 : 700;  // U+2070 begins with raised digits
    return 1000;                                                 // mostly East Asian
  }
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
    const auto taken = static_cast<std::size_t>(std::max(length, 1));
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
  trim_zeros(number);
  return without_negative_zero(std::move(number));
}

std::string compact_number(double value, int digits) {
  if (!std::isfinite(value)) return std::string(missing);
  if (value == 0) return "0";
  digits = std::max(digits, 1);
  // The exponent after rounding, so that 9.999 counts as 10.
  const std::string scientific = printed(value, std::chars_format::scientific, digits - 1);
  const std::size_t e = scientific.find('e');
  int exponent = 0;
  const char* first = scientific.data() + e + (scientific[e + 1] == '+' ? 2 : 1);
  std::from_chars(first, scientific.data() + scientific.size(), exponent);
  if (exponent < -4 || exponent >= std::max(digits, 6)) {
    std::string mantissa = scientific.substr(0, e);
    trim_zeros(mantissa);
    return mantissa + "×" + power(10, exponent);
  }
  std::string number = printed(value, std::chars_format::fixed, std::max(0, digits - 1 - exponent));
  trim_zeros(number);
  return number;
}

std::string fixed_number(double value, int decimals) {
  if (!std::isfinite(value)) return std::string(missing);
  return without_negative_zero(printed(value, std::chars_format::fixed, std::max(decimals, 0)));
}

std::string power(int base, int exponent) {
  static constexpr std::array<std::string_view, 10> raised = {"⁰", "¹", "²", "³", "⁴",
                                                              "⁵", "⁶", "⁷", "⁸", "⁹"};
  std::string out = std::to_string(base);
  for (const char c : std::to_string(exponent)) {
    out += c == '-' ? std::string_view("⁻") : raised[c - '0'];
  }
  return out;
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
