// Text by code points, as Python counts them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "chat/text.h"

namespace coppice::chat {

// Each of these charges the rendering's budget for what it looks at.

/// The first code point of valid UTF-8 and its bytes.
struct CodePoint {
  char32_t value;
  std::size_t bytes;
};
CodePoint first_code_point(std::string_view text);
/// The last one.
CodePoint last_code_point(std::string_view text);
std::string to_utf8(char32_t value);

/// Number of code points.
std::size_t length(std::string_view text);
/// Byte where code point `index` begins; the end of the text if it has fewer.
std::size_t offset(std::string_view text, std::size_t index);

bool is_space(char32_t c);  ///< as str.isspace
bool is_alpha(char32_t c);
bool is_digit(char32_t c);
bool is_lower(char32_t c);
bool is_upper(char32_t c);
bool is_printable(char32_t c);  ///< as repr() leaves it

enum class Case { lower, upper, title, capitalized, swapped, folded };
/// Unicode's full mapping, in which one letter may become several (ß to SS).
Text with_case(const Text& text, Case to);

/// Without the code points of `set` at the sides asked for; white space if `set` is null.
Text stripped(const Text& text, const Text* set, bool left, bool right);

}  // namespace coppice::chat
