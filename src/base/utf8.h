// UTF-8 boundaries: streamed text must be valid at every moment.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace coppice {

/// Length in bytes of the sequence that `text` begins with: 1 to 4 for a complete
/// valid one, 0 for an invalid one, -1 for a valid beginning that is cut off.
inline int utf8_sequence(std::string_view text) {
  if (text.empty()) return -1;
  const auto at = [&](std::size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = at(0);
  if (lead < 0x80) return 1;
  int length = 0;
  unsigned char low = 0x80, high = 0xbf;  // bounds of the second byte (RFC 3629)
  if (lead >= 0xc2 && lead <= 0xdf) {
    length = 2;
  } else if (lead >= 0xe0 && lead <= 0xef) {
    length = 3;
    if (lead == 0xe0) low = 0xa0;
    if (lead == 0xed) high = 0x9f;
  } else if (lead >= 0xf0 && lead <= 0xf4) {
    length = 4;
    if (lead == 0xf0) low = 0x90;
    if (lead == 0xf4) high = 0x8f;
  } else {
    return 0;
  }
  for (int i = 1; i < length; ++i) {
    if (static_cast<std::size_t>(i) >= text.size()) return -1;
    if (at(i) < low || at(i) > high) return 0;
    low = 0x80;
    high = 0xbf;
  }
  return length;
}

/// Bytes of what one U+FFFD stands for at the beginning of `text`, where no character is complete:
/// the longest beginning of a character, at least one byte. This is what Unicode recommends, and
/// what Python and Rust do.
inline std::size_t broken_utf8(std::string_view text) {
  std::size_t bytes = 1;
  while (bytes < text.size() && utf8_sequence(text.substr(0, bytes + 1)) < 0) ++bytes;
  return bytes;
}

/// `bytes` with U+FFFD in place of each longest sequence that is no UTF-8.
inline std::string to_valid_utf8(std::string_view bytes) {
  std::string text;
  while (!bytes.empty()) {
    const int valid = utf8_sequence(bytes);
    const std::size_t length = valid > 0 ? static_cast<std::size_t>(valid) : broken_utf8(bytes);
    text += valid > 0 ? bytes.substr(0, length) : std::string_view("\xEF\xBF\xBD");
    bytes.remove_prefix(length);
  }
  return text;
}

inline bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const int n = utf8_sequence(text);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace coppice
