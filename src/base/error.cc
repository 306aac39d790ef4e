#include "base/error.h"

#include <cstdio>

#include "base/utf8.h"

namespace coppice {

void throw_usage(const std::string& message) { throw Error(ErrorKind::usage, message); }
void throw_failure(const std::string& message) { throw Error(ErrorKind::failure, message); }

std::string quote(const std::string& text) {
  constexpr std::size_t longest = 160;
  std::string shown = text;
  if (shown.size() > longest) {
    shown = text.substr(0, longest / 2) + "..." + text.substr(text.size() - longest / 2);
  }
  const bool valid = is_valid_utf8(shown);
  std::string out = "'";
  for (unsigned char c : shown) {
    if (c < 0x20 || c == 0x7f || (c >= 0x80 && !valid)) {
      char hex[8];
      std::snprintf(hex, sizeof hex, "\\x%02x", c);
      out += hex;
    } else {
      out += static_cast<char>(c);
    }
  }
  return out + "'";
}

}  // namespace coppice
