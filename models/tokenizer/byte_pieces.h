// Pieces that stand for one byte each, for text that no other piece spells.
#pragma once

#include <string_view>

namespace coppice {

/// What a byte piece stands for: "<0x0A>" is one byte. -1: not spelt like one.
inline int byte_value(std::string_view piece) {
  if (piece.size() != 6 || piece.substr(0, 3) != "<0x" || piece[5] != '>') return -1;
  int value = 0;
  for (const char c : piece.substr(3, 2)) {
    const int digit = c >= '0' && c <= '9' ? c - '0' : c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
    if (digit < 0) return -1;
    value = 16 * value + digit;
  }
  return value;
}

}  // namespace coppice
