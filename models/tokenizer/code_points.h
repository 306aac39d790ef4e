// Valid UTF-8, one code point at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace coppice::tokenization {

/// Bytes of the code point that valid UTF-8 begins with.
inline std::size_t code_point_bytes(std::string_view text) {
  const auto lead = static_cast<unsigned char>(text.front());
  const std::size_t bytes = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  return bytes < text.size() ? bytes : text.size();
}

/// Takes the first code point off valid UTF-8, which must not be empty.
inline std::int32_t take_code_point(std::string_view& text) {
  const std::size_t bytes = code_point_bytes(text);
  const auto lead = static_cast<unsigned char>(text.front());
  std::int32_t code = bytes == 1 ? lead : lead & (0xFF >> (bytes + 1));
  for (std::size_t i = 1; i < bytes; ++i) {
    code = code << 6 | (static_cast<unsigned char>(text[i]) & 0x3F);
  }
  text.remove_prefix(bytes);
  return code;
}

void append_utf8(std::int32_t code, std::string& text);

/// The property White_Space of Unicode.
inline bool is_space(std::int32_t code) {
  return (code >= 0x9 && code <= 0xD) || code == 0x20 || code == 0x85 || code == 0xA0 ||
         code == 0x1680 || (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 ||
         code == 0x202F || code == 0x205F || code == 0x3000;
}

/// Bytes of white space that the text begins, or ends, with.
std::size_t leading_space(std::string_view text);
std::size_t trailing_space(std::string_view text);

/// `text` with every `from` (not empty) replaced by `to`, first to last; `before_each` is called
/// before each of them.
std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     const std::function<void()>& before_each = {});

}  // namespace coppice::tokenization
