#include "models/tokenizer/code_points.h"

#include <utf8proc.h>

namespace coppice::tokenization {

void append_utf8(std::int32_t code, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const auto count = utf8proc_encode_char(code, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(count));
}

std::size_t leading_space(std::string_view text) {
  std::size_t bytes = 0;
  while (bytes < text.size()) {
    std::string_view rest = text.substr(bytes);
    const std::size_t length = code_point_bytes(rest);
    if (!is_space(take_code_point(rest))) break;
    bytes += length;
  }
  return bytes;
}

std::size_t trailing_space(std::string_view text) {
  std::size_t end = text.size();
  while (end > 0) {
    std::size_t begin = end - 1;
    while (begin > 0 && (static_cast<unsigned char>(text[begin]) & 0xC0) == 0x80) --begin;
    std::string_view last = text.substr(begin, end - begin);
    if (!is_space(take_code_point(last))) break;
    end = begin;
  }
  return text.size() - end;
}

std::string replaced(std::string_view text, std::string_view from, std::string_view to,
                     const std::function<void()>& before_each) {
  std::string out;
  out.reserve(text.size());
  std::size_t done = 0;
  for (std::size_t at; (at = text.find(from, done)) != text.npos; done = at + from.size()) {
    if (before_each) before_each();
    out += text.substr(done, at - done);
    out += to;
  }
  out += text.substr(done);
  return out;
}

}  // namespace coppice::tokenization
