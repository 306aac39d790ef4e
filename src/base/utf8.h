// UTF-8 boundaries: streamed text must be valid at every moment.
#pragma once

#include <cstddef>
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

inline bool is_valid_utf8(std::string_view text) {
  while (!text.empty()) {
    const int n = utf8_sequence(text);
    if (n <= 0) return false;
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return true;
}

}  // namespace coppice
