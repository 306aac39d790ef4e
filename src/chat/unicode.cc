#include "chat/unicode.h"

#include <utf8proc.h>

#include <algorithm>

namespace coppice::chat {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
  utf8proc_int32_t value = 0;
  const auto n = utf8proc_iterate(
      reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
      static_cast<utf8proc_ssize_t>(std::min<std::size_t>(text.size(), 4)), &value);
  if (n <= 0) return {0xfffd, std::min<std::size_t>(text.size(), 1)};
  return {static_cast<char32_t>(value), static_cast<std::size_t>(n)};
}

CodePoint last_code_point(std::string_view text) {
  std::size_t from = text.empty() ? 0 : text.size() - 1;
  while (from > 0 && (static_cast<unsigned char>(text[from]) & 0xc0) == 0x80) --from;
  return first_code_point(text.substr(from));
}

std::string to_utf8(char32_t value) {
  utf8proc_uint8_t bytes[4];
  const bool valid = value <= 0x10ffff && (value < 0xd800 || value > 0xdfff);
  const auto n = utf8proc_encode_char(static_cast<utf8proc_int32_t>(valid ? value : 0xfffd), bytes);
  return {reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(n)};
}

std::size_t length(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::vector<std::size_t> boundaries(std::string_view text) {
  std::vector<std::size_t> starts;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if ((static_cast<unsigned char>(text[i]) & 0xc0) != 0x80) starts.push_back(i);
  }
  starts.push_back(text.size());
  return starts;
}

bool is_space(char32_t c) {
  if (c < 0x80) return (c >= 0x09 && c <= 0x0d) || (c >= 0x1c && c <= 0x20);
  const auto kind = category(c);
  return c == 0x85 || kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
         kind == UTF8PROC_CATEGORY_ZP;
}

bool is_alpha(char32_t c) {
  const auto kind = category(c);
  return kind >= UTF8PROC_CATEGORY_LU && kind <= UTF8PROC_CATEGORY_LO;
}
bool is_digit(char32_t c) { return category(c) == UTF8PROC_CATEGORY_ND; }
bool is_lower(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LL; }
bool is_upper(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LU; }

bool is_printable(char32_t c) {
  if (c < 0x80) return c >= 0x20 && c != 0x7f;
  const auto kind = category(c);
  return kind != UTF8PROC_CATEGORY_CN && kind != UTF8PROC_CATEGORY_ZS &&
         kind < UTF8PROC_CATEGORY_ZL;
}

Text with_case(const Text& text, Case to) {
  constexpr char32_t sharp_s = 0xdf;
  Text out;
  bool begins_word = true;
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, bytes] = first_code_point(text.view().substr(at));
    const auto code = static_cast<utf8proc_int32_t>(c);
    bool up = to == Case::upper;
    if (to == Case::title) up = begins_word;
    if (to == Case::capitalized) up = at == 0;
    if (to == Case::swapped) up = is_lower(c);
    const std::string changed =
        up && c == sharp_s
            ? (to == Case::upper || to == Case::swapped ? "SS" : "Ss")
            : to_utf8(static_cast<char32_t>(!up ? utf8proc_tolower(code)
                                            : to == Case::title || to == Case::capitalized
                                                ? utf8proc_totitle(code)
                                                : utf8proc_toupper(code)));
    out.append(changed, text.foreign_at(at));
    begins_word = !is_alpha(c);
    at += bytes;
  }
  return out;
}

Text stripped(const Text& text, const std::string* set, bool left, bool right) {
  const auto goes = [&](const CodePoint& c) {
    return set == nullptr ? is_space(c.value) : set->find(to_utf8(c.value)) != std::string::npos;
  };
  std::string_view rest = text.view();
  std::size_t from = 0;
  while (left && !rest.empty()) {
    const CodePoint c = first_code_point(rest);
    if (!goes(c)) break;
    rest.remove_prefix(c.bytes);
    from += c.bytes;
  }
  while (right && !rest.empty()) {
    const CodePoint c = last_code_point(rest);
    if (!goes(c)) break;
    rest.remove_suffix(c.bytes);
  }
  return text.substr(from, rest.size());
}

}  // namespace coppice::chat
