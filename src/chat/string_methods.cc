// Methods of Python's str. All carry the marks along.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "chat/arguments.h"
#include "chat/interpreter.h"
#include "chat/python_text.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

Value strip(const Value& value, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {""});
  const Text* set = words.unless_none(0) != nullptr ? &words.text(0) : nullptr;
  return Value(stripped(value.text(), set, name != "rstrip", name != "lstrip"));
}

// Pieces between white space.
std::vector<Value> split_words(const Text& self, std::int64_t most, bool from_right) {
  struct Range {
    std::size_t from, to;
  };
  std::vector<Range> words;
  bool inside = false;
  for (std::size_t at = 0; at < self.size();) {
    const CodePoint c = first_code_point(self.view().substr(at));
    if (is_space(c.value)) {
      inside = false;
    } else {
      if (!inside) words.push_back({at, at});
      inside = true;
      words.back().to = at + c.bytes;
    }
    at += c.bytes;
  }
  std::vector<Value> out;
  const auto count = static_cast<std::int64_t>(words.size());
  if (most < 0 || count <= most) {
    for (const Range& word : words) out.emplace_back(self.substr(word.from, word.to - word.from));
    return out;
  }
  // The rest is one piece, without the blanks at the side that was split.
  const auto splits = static_cast<std::size_t>(most);
  if (from_right) {
    const std::size_t kept = words.size() - splits;
    out.emplace_back(self.substr(0, words[kept - 1].to));
    for (std::size_t i = kept; i < words.size(); ++i) {
      out.emplace_back(self.substr(words[i].from, words[i].to - words[i].from));
    }
  } else {
    for (std::size_t i = 0; i < splits; ++i) {
      out.emplace_back(self.substr(words[i].from, words[i].to - words[i].from));
    }
    out.emplace_back(self.substr(words[splits].from));
  }
  return out;
}

Value split(const Value& value, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {"sep", "maxsplit"});
  const Text& self = value.text();
  const bool from_right = name == "rsplit";
  std::int64_t most = words.count(1, -1);
  if (words.unless_none(0) == nullptr) return Value::list(split_words(self, most, from_right));
  const std::string_view sep = words.text(0).view();
  if (sep.empty()) throw TemplateError("empty separator");
  const std::string_view bytes = self.view();
  std::vector<Value> out;
  if (from_right) {
    std::size_t end = self.size();
    for (; most != 0 && end >= sep.size(); --most) {
      const std::size_t at = find_last_text(bytes, sep, end);
      if (at == std::string::npos) break;
      out.emplace_back(self.substr(at + sep.size(), end - at - sep.size()));
      end = at;
    }
    out.emplace_back(self.substr(0, end));
    std::reverse(out.begin(), out.end());
  } else {
    std::size_t from = 0;
    for (; most != 0; --most) {
      const std::size_t at = find_text(bytes, sep, from);
      if (at == std::string::npos) break;
      out.emplace_back(self.substr(from, at - from));
      from = at + sep.size();
    }
    out.emplace_back(self.substr(from));
  }
  return Value::list(std::move(out));
}

bool ends_line(char32_t c) {
  return (c >= 0x0a && c <= 0x0d) || (c >= 0x1c && c <= 0x1e) || c == 0x85 || c == 0x2028 ||
         c == 0x2029;
}

Value split_lines(const Value& value, std::string_view name, const Arguments& given) {
  const bool keeps = Bound(given, name, {"keepends"}).small(0, 0) != 0;
  const Text& self = value.text();
  std::vector<Value> out;
  std::size_t from = 0;
  for (std::size_t at = 0; at < self.size();) {
    const CodePoint c = first_code_point(self.view().substr(at));
    std::size_t next = at + c.bytes;
    if (ends_line(c.value)) {
      if (c.value == '\r' && next < self.size() && self.view()[next] == '\n') ++next;
      out.emplace_back(self.substr(from, (keeps ? next : at) - from));
      from = next;
    }
    at = next;
  }
  if (from < self.size()) out.emplace_back(self.substr(from));
  return Value::list(std::move(out));
}

Value replace(const Value& value, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {"", "", "count"}, 2);
  const Text &self = value.text(), &to = words.text(1);
  const std::string_view bytes = self.view(), from = words.text(0).view();
  std::int64_t left = words.count(2, -1);
  Text out;
  if (from.empty()) {
    for (std::size_t at = 0; left != 0; --left) {
      out.append(to);
      if (at == self.size()) return Value(std::move(out));
      const std::size_t next = at + first_code_point(bytes.substr(at)).bytes;
      out.append(self, at, next - at);
      at = next;
      if (left == 1) out.append(self, at, self.size() - at);
    }
    return out.empty() ? value : Value(std::move(out));
  }
  std::size_t at = 0;
  for (std::size_t found = find_text(bytes, from); found != std::string::npos && left != 0;
       found = find_text(bytes, from, at)) {
    out.append(self, at, found - at);
    out.append(to);
    at = found + from.size();
    if (left > 0) --left;
  }
  out.append(self, at, self.size() - at);
  return Value(std::move(out));
}

// The part that optional start and end arguments leave, for searches. False: an empty reach that
// holds not even the empty text.
bool reach(const Text& self, const Bound& words, std::size_t& from, std::size_t& to) {
  from = 0;
  to = self.size();
  if (words.unless_none(1) == nullptr && words.unless_none(2) == nullptr) return true;
  const auto n = static_cast<std::int64_t>(length(self.view()));
  const auto index = [&](std::size_t which, std::int64_t fallback) {
    if (words.unless_none(which) == nullptr) return fallback;
    const std::int64_t at = words.count(which);
    return at < 0 ? std::max<std::int64_t>(0, at + n) : at;
  };
  const std::int64_t first = index(1, 0), last = std::min(n, index(2, n));
  if (first > n || first > last) return false;
  from = offset(self.view(), static_cast<std::size_t>(first));
  to = offset(self.view(), static_cast<std::size_t>(last));
  return true;
}

Value find(const Value& value, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {"", "", ""}, 1);
  const Text& self = value.text();
  const std::string_view what = words.text(0).view();
  std::size_t from = 0, to = 0;
  std::size_t at = std::string::npos;
  if (reach(self, words, from, to)) {
    const std::string_view part = self.view().substr(from, to - from);
    at = name[0] == 'r' ? find_last_text(part, what) : find_text(part, what);
  }
  if (at == std::string::npos) {
    if (name.find("index") != std::string::npos) throw TemplateError("substring not found");
    return Value(-1);
  }
  return Value(length(self.view().substr(0, from + at)));
}

Value count_text(const Value& value, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {"", "", ""}, 1);
  const Text& self = value.text();
  const std::string_view what = words.text(0).view();
  std::size_t from = 0, to = 0;
  if (!reach(self, words, from, to)) return Value(0);
  const std::string_view part = self.view().substr(from, to - from);
  if (what.empty()) return Value(length(part) + 1);
  std::size_t times = 0;
  for (std::size_t at = find_text(part, what); at != std::string::npos;
       at = find_text(part, what, at + what.size())) {
    ++times;
  }
  return Value(times);
}

Value begins_or_ends(const Value& value, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {"", "", ""}, 1);
  const Text& self = value.text();
  std::size_t from = 0, to = 0;
  const bool reachable = reach(self, words, from, to);
  const std::string_view part = self.view().substr(from, to - from);
  const Value& what = words[0];
  const std::vector<Value> choices =
      what.is_list(List::Kind::tuple) ? items_of(what) : std::vector<Value>{what};
  for (const Value& choice : choices) {
    const std::string_view text = text_of(choice, cat(name, "'s argument")).view();
    Budget::look_at(text.size() / 64);
    if (reachable && (name == "startswith" ? part.starts_with(text) : part.ends_with(text))) {
      return Value(true);
    }
  }
  return Value(false);
}

Value partition(const Value& value, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {""}, 1);
  const Text &self = value.text(), &sep = words.text(0);
  if (sep.empty()) throw TemplateError("empty separator");
  const bool from_right = name == "rpartition";
  const std::size_t at =
      from_right ? find_last_text(self.view(), sep.view()) : find_text(self.view(), sep.view());
  if (at == std::string::npos) {
    const Value empty{std::string()};
    return from_right ? Value::tuple({empty, empty, value}) : Value::tuple({value, empty, empty});
  }
  return Value::tuple({Value(self.substr(0, at)), Value(self.substr(at, sep.size())),
                       Value(self.substr(at + sep.size()))});
}

Value join_text(const Value& value, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {""}, 1);
  Text out;
  std::size_t index = 0;
  for (const Value& item : items_of(words[0])) {
    if (index++ > 0) out.append(value.text());
    out.append(text_of(item, "an item to join"));
  }
  return Value(std::move(out));
}

Value pad(const Value& value, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {"", ""}, 1);
  const Text& self = value.text();
  const std::int64_t width = words.count(0);
  const Text fill = words.text(1, " ");
  if (length(fill.view()) != 1) throw TemplateError("the fill must be one character");
  if (name == "center") {
    // CPython puts the odd one left if the width is odd.
    const auto have = static_cast<std::int64_t>(length(self.view()));
    const std::int64_t missing = std::max<std::int64_t>(0, width - have);
    const std::int64_t left = missing / 2 + (missing & width & 1);
    return Value(padded(padded(self, have + left, '>', fill), width, '<', fill));
  }
  return Value(padded(self, width, name == "ljust" ? '<' : '>', fill));
}

Value zero_fill(const Value& value, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {""}, 1);
  const Text& self = value.text();
  const std::int64_t width = words.count(0);
  const bool sign = !self.empty() && (self.view()[0] == '-' || self.view()[0] == '+');
  Text out = self.substr(0, sign ? 1 : 0);
  out.append(padded(self.substr(sign ? 1 : 0), width - (sign ? 1 : 0), '>', "0"));
  return Value(std::move(out));
}

Value is_kind(const Value& value, std::string_view name, const Arguments& given) {
  static_cast<void>(Bound(given, name));
  const Text& self = value.text();
  bool any_cased = false;
  for (std::size_t at = 0; at < self.size();) {
    const CodePoint c = first_code_point(self.view().substr(at));
    const char32_t v = c.value;
    if ((name == "isspace" && !is_space(v)) || (name == "isalpha" && !is_alpha(v)) ||
        ((name == "isdigit" || name == "isdecimal" || name == "isnumeric") && !is_digit(v)) ||
        (name == "isalnum" && !is_alpha(v) && !is_digit(v)) || (name == "islower" && is_upper(v)) ||
        (name == "isupper" && is_lower(v))) {
      return Value(false);
    }
    any_cased = any_cased || is_lower(v) || is_upper(v);
    at += c.bytes;
  }
  return Value(!self.empty() && (any_cased || (name != "islower" && name != "isupper")));
}

Value expand_tabs(const Value& value, std::string_view name, const Arguments& given) {
  const std::int64_t width = Bound(given, name, {"tabsize"}).small(0, 8);
  const Text& self = value.text();
  Text out;
  std::int64_t column = 0;
  for (std::size_t at = 0; at < self.size();) {
    const CodePoint c = first_code_point(self.view().substr(at));
    if (c.value == '\t') {
      const std::int64_t blanks = width > 0 ? width - column % width : 0;
      out.append(padded(Text(), blanks, '<', Text(" ", self.foreign_at(at))));
      column += blanks;
    } else {
      out.append(self, at, c.bytes);
      column = c.value == '\n' || c.value == '\r' ? 0 : column + 1;
    }
    at += c.bytes;
  }
  return Value(std::move(out));
}

Value without_part(const Value& value, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {""}, 1);
  const Text &self = value.text(), &part = words.text(0);
  const bool prefix = name == "removeprefix";
  Budget::look_at(part.size() / 64);
  const bool there =
      prefix ? self.view().starts_with(part.view()) : self.view().ends_with(part.view());
  if (!there) return value;
  return Value(self.substr(prefix ? part.size() : 0, self.size() - part.size()));
}

Value format(const Value& value, std::string_view, const Arguments& given) {
  return Value(brace_format(value.text(), given));
}

template <Case to>
Value in_case(const Value& value, std::string_view name, const Arguments& given) {
  static_cast<void>(Bound(given, name));
  return Value(with_case(value.text(), to));
}

}  // namespace

std::size_t find_text(std::string_view text, std::string_view what, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // Linear, other than the standard library's search.
  const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  const std::size_t at =
      found == nullptr ? std::string_view::npos
                       : static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
  Budget::look_at(2 + (std::min(at, text.size()) - from + what.size()) / 8);
  return at;
}

std::size_t find_last_text(std::string_view text, std::string_view what, std::size_t end) {
  end = std::min(end, text.size());
  if (what.empty()) return end;
  // By the last byte; then all others are compared, which hostile texts make long.
  while (end >= what.size()) {
    const void* const last =
        memrchr(text.data() + what.size() - 1, what.back(), end - what.size() + 1);
    if (last == nullptr) break;
    const auto at = static_cast<std::size_t>(static_cast<const char*>(last) - text.data());
    std::size_t same = 1;
    while (same < what.size() && text[at - same] == what[what.size() - 1 - same]) ++same;
    Budget::look_at(2 + (end - at) / 8 + same / 4);
    if (same == what.size()) return at + 1 - same;
    end = at;
  }
  Budget::look_at(end / 8);
  return std::string_view::npos;
}

const Table<Method>& string_methods() {
  static const Table<Method> all = {{"capitalize", in_case<Case::capitalized>},
                                    {"casefold", in_case<Case::folded>},
                                    {"center", pad},
                                    {"count", count_text},
                                    {"endswith", begins_or_ends},
                                    {"expandtabs", expand_tabs},
                                    {"find", find},
                                    {"format", format},
                                    {"index", find},
                                    {"isalnum", is_kind},
                                    {"isalpha", is_kind},
                                    {"isdecimal", is_kind},
                                    {"isdigit", is_kind},
                                    {"islower", is_kind},
                                    {"isnumeric", is_kind},
                                    {"isspace", is_kind},
                                    {"isupper", is_kind},
                                    {"join", join_text},
                                    {"ljust", pad},
                                    {"lower", in_case<Case::lower>},
                                    {"lstrip", strip},
                                    {"partition", partition},
                                    {"removeprefix", without_part},
                                    {"removesuffix", without_part},
                                    {"replace", replace},
                                    {"rfind", find},
                                    {"rindex", find},
                                    {"rjust", pad},
                                    {"rpartition", partition},
                                    {"rsplit", split},
                                    {"rstrip", strip},
                                    {"split", split},
                                    {"splitlines", split_lines},
                                    {"startswith", begins_or_ends},
                                    {"strip", strip},
                                    {"swapcase", in_case<Case::swapped>},
                                    {"title", in_case<Case::title>},
                                    {"upper", in_case<Case::upper>},
                                    {"zfill", zero_fill}};
  return all;
}

Value string_method(const Text& self, std::string_view name, const Arguments& arguments) {
  return string_methods().at(name)(Value(self), name, arguments);
}

}  // namespace coppice::chat
