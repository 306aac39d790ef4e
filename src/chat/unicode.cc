#include "chat/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <set>

namespace coppice::chat {
namespace {

utf8proc_category_t category(char32_t c) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(c));
}

}  // namespace

CodePoint first_code_point(std::string_view text) {
  Budget::look_at(1);
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
  Budget::look_at(text.size() / 16);
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xc0) != 0x80;
  }));
}

std::size_t offset(std::string_view text, std::size_t index) {
  std::size_t at = 0, begun = 0;
  for (; at < text.size(); ++at) {
    if ((static_cast<unsigned char>(text[at]) & 0xc0) != 0x80 && begun++ == index) break;
  }
  Budget::look_at(at / 8);
  return at;
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

namespace {

bool is_title(char32_t c) { return category(c) == UTF8PROC_CATEGORY_LT; }

// The letters that a capital one, or a ligature, stands for.
std::u32string folded(char32_t c) {
  utf8proc_int32_t codes[8];
  const auto count = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(c), codes, 8,
                                             UTF8PROC_CASEFOLD, nullptr);
  return {codes, codes + std::clamp<utf8proc_ssize_t>(count, 0, 8)};
}

std::string raised(char32_t c, bool title) {
  if (c < 0x80) return std::string(1, static_cast<char>(c >= 'a' && c <= 'z' ? c - 'a' + 'A' : c));
  const auto simple = [title](char32_t letter) {
    const auto code = static_cast<utf8proc_int32_t>(letter);
    return static_cast<char32_t>(title ? utf8proc_totitle(code) : utf8proc_toupper(code));
  };
  // Folding knows which letters become several. Some of those have, or are, a title case of their
  // own; that of ß, which the tables give as ẞ, is Ss.
  constexpr char32_t sharp_s = 0xdf;
  const bool single =
      is_upper(c) || (title && is_title(c)) || (title && simple(c) != c && c != sharp_s);
  const std::u32string several = single ? U"" : folded(c);
  if (several.size() < 2) return to_utf8(simple(c));
  std::string out;
  for (std::size_t i = 0; i < several.size(); ++i) {
    out += to_utf8(title && i > 0 ? several[i] : simple(several[i]));
  }
  return out;
}

bool is_cased(char32_t c) { return is_upper(c) || is_lower(c) || is_title(c); }

// Marks, and signs inside of words such as the apostrophe.
bool is_case_ignorable(char32_t c) {
  switch (category(c)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return c == '\'' || c == '.' || c == ':' || c == 0xb7 || c == 0x2018 || c == 0x2019;
  }
}

// A sigma at `at` ends its word.
bool is_final_sigma(std::string_view text, std::size_t at, std::size_t bytes) {
  std::string_view before = text.substr(0, at), behind = text.substr(at + bytes);
  while (!before.empty() && is_case_ignorable(last_code_point(before).value)) {
    before.remove_suffix(last_code_point(before).bytes);
  }
  while (!behind.empty() && is_case_ignorable(first_code_point(behind).value)) {
    behind.remove_prefix(first_code_point(behind).bytes);
  }
  return !before.empty() && is_cased(last_code_point(before).value) &&
         (behind.empty() || !is_cased(first_code_point(behind).value));
}

std::string lowered(std::string_view text, std::size_t at, const CodePoint& c) {
  constexpr char32_t capital_sigma = 0x3a3, dotted_i = 0x130;
  if (c.value < 0x80) {
    return std::string(
        1, static_cast<char>(c.value >= 'A' && c.value <= 'Z' ? c.value - 'A' + 'a' : c.value));
  }
  if (c.value == capital_sigma) return is_final_sigma(text, at, c.bytes) ? "ς" : "σ";
  if (c.value == dotted_i) return "i\u0307";
  return to_utf8(static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(c.value))));
}

}  // namespace

Text with_case(const Text& text, Case to) {
  Text out;
  bool begins_word = true;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.view().substr(at));
    if (c.value >= 0x80) Budget::look_at(8);  // searches through tables
    const bool title = (to == Case::title && begins_word) || (to == Case::capitalized && at == 0);
    std::string changed;
    if (to == Case::folded) {
      for (const char32_t letter : folded(c.value)) changed += to_utf8(letter);
    } else if (title || to == Case::upper || (to == Case::swapped && is_lower(c.value))) {
      changed = raised(c.value, title);
    } else if (to == Case::swapped && !is_upper(c.value)) {
      changed = to_utf8(c.value);
    } else {
      changed = lowered(text.view(), at, c);
    }
    out.append(changed, text.foreign_at(at));
    begins_word = !is_cased(c.value);
    at += c.bytes;
  }
  return out;
}

Text stripped(const Text& text, const Text* set, bool left, bool right) {
  if (set != nullptr) Budget::spend_steps(set->size());
  std::set<char32_t> outer;
  for (std::size_t at = 0; set != nullptr && at < set->size();) {
    const CodePoint c = first_code_point(set->view().substr(at));
    outer.insert(c.value);
    at += c.bytes;
  }
  const auto goes = [&](const CodePoint& c) {
    return set == nullptr ? is_space(c.value) : outer.count(c.value) != 0;
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
