#include "base/error.h"

#include <algorithm>
#include <cstdio>

#include "base/utf8.h"

namespace coppice {

Error::Error(ErrorKind kind, const std::string& message)
    : std::runtime_error(printable(message)), kind_(kind) {}

void throw_usage(const std::string& message) { throw Error(ErrorKind::usage, message); }
void throw_failure(const std::string& message) { throw Error(ErrorKind::failure, message); }

namespace {

// Of a valid UTF-8 sequence of two bytes or more.
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

}  // namespace

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
  if (text.size() <= longest) return cat("'", printable(text), "'");
  // Not through the middle of a character.
  std::size_t head = longest / 2, tail = text.size() - longest / 2;
  const auto continues = [&](std::size_t at) {
    return (static_cast<unsigned char>(text[at]) & 0xc0) == 0x80;
  };
  for (int i = 0; i < 3 && continues(head); ++i) --head;
  for (int i = 0; i < 3 && continues(tail); ++i) ++tail;
  return cat("'", printable(text.substr(0, head)), "...", printable(text.substr(tail)), "'");
}

}  // namespace coppice
