// Text of figures and tables: markup escaping, numbers, and how wide a line will be.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace coppice::study {

/// Text for XML or HTML content and double-quoted attributes: & < > " ' become references. What
/// XML 1.0 cannot carry (invalid UTF-8, control characters, U+FFFE and U+FFFF) becomes U+FFFD.
std::string escape_markup(std::string_view text);

/// A coordinate or length: at most two decimals, no exponent, no trailing zeros, never "-0",
/// whatever the locale. What is not finite becomes 0; beyond a million pixels it stops there.
std::string coordinate(double value);

/// A value for readers, to `digits` significant digits: "0.83", "812", "3.2e+07".
std::string compact_number(double value, int digits = 3);

/// `decimals` digits after the point, whatever the locale; "-" for no finite number.
std::string fixed(double value, int decimals);

/// A count for readers, in groups of three digits: "12,288".
std::string grouped(std::int64_t count);

/// A number in as few digits as name it, whatever the locale.
std::string number_text(double number);
/// Six digits, empty for no number: for programs.
std::string exact(double value);
/// Per cent with one digit after the point; "-" of nothing.
std::string percent(double part, double whole);
/// printf to a string, of any length.
[[gnu::format(printf, 1, 2)]] std::string line(const char* format, ...);

/// Width in pixels of one line of text in a sans-serif font, by Helvetica's advance widths with a
/// margin for fallback fonts (an estimate: the reader's font is not known).
double text_width(std::string_view text, double font_size);

/// The text, shortened at its end with "…" where it is wider than `width` pixels.
std::string fit_text(std::string_view text, double font_size, double width);

}  // namespace coppice::study
