// Hexadecimal digits.
#pragma once

namespace coppice {

/// The value of a digit of either case; -1: it is none.
inline int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = static_cast<char>(c | 0x20);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

}  // namespace coppice
