#include "base/error.h"

#include <algorithm>
#include <cstdio>

#include "base/utf8.h"

namespace coppice {

void throw_usage(const std::string& message) { throw Error(ErrorKind::usage, message); }
void throw_failure(const std::string& message) { throw Error(ErrorKind::failure, message); }

namespace {

// Decodes a valid UTF-8 sequence of two bytes or more.
char32_t code_point(std::string_view sequence) {
  char32_t code = static_cast<unsigned char>(sequence[0]) & (0xffu >> (sequence.size() + 1));
  for (const char c : sequence.substr(1)) code = code << 6 | (static_cast<unsigned char>(c) & 0x3f);
  return code;
}

// Controls of terminals (C1), of lines, and of the direction of text.
bool acts(char32_t code) {
  return (code >= 0x80 && code <= 0x9f) || code == 0x061c || code == 0x200e || code == 0x200f ||
         code == 0x2028 || code == 0x2029 || (code >= 0x202a && code <= 0x202e) ||
         (code >= 0x2066 && code <= 0x2069);
}

// printable(), but for what lies between so many bytes at either end.
std::string shortened(std::string_view text, std::size_t first, std::size_t last) {
  if (text.size() <= first + last) return printable(text);
  // Not through the middle of a character.
  std::size_t head = first, tail = text.size() - last;
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  for (int i = 0; i < 3 && continues(head); ++i) --head;
  for (int i = 0; i < 3 && continues(tail); ++i) ++tail;
  return printable(text.substr(0, head)) + "..." + printable(text.substr(tail));
}

// Longest parts of a message, whatever it tells of: its place comes first, its remedy last.
constexpr std::size_t longest_head = 1500, longest_tail = 500;

}  // namespace

Error::Error(ErrorKind kind, const std::string& message)
    : std::runtime_error(shortened(message, longest_head, longest_tail)), kind_(kind) {}

std::string printable(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  const auto escape = [&](const char* format, unsigned value) {
    char escaped[16];
    std::snprintf(escaped, sizeof escaped, format, value);
    out += escaped;
  };
  while (!text.empty()) {
    const int bytes = utf8_sequence(text);
    const auto length = static_cast<std::size_t>(std::max(bytes, 1));
    const auto first = static_cast<unsigned char>(text[0]);
    if (bytes <= 0) {
      escape("\\x%02x", first);
    } else if (first == '\n' || first == '\t') {
      out += first == '\n' ? "\\n" : "\\t";
    } else if (first < 0x20 || first == 0x7f) {
      escape("\\x%02x", first);
    } else if (length > 1 && acts(code_point(text.substr(0, length)))) {
      escape("\\u%04x", static_cast<unsigned>(code_point(text.substr(0, length))));
    } else {
      out += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return out;
}

std::string quote(std::string_view text) {
  constexpr std::size_t longest = 160;
  return cat("'", shortened(text, longest / 2, longest / 2), "'");
}

}  // namespace coppice
