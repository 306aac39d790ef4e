// Methods of Python's str. All carry the marks along.
#include <algorithm>
#include <array>
#include <cstring>

#include "base/error.h"
#include "chat/interpreter.h"
#include "chat/python_text.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

constexpr std::array all_methods = {
    "capitalize", "casefold",     "center",       "count",   "endswith",   "expandtabs", "find",
    "format",     "index",        "isalnum",      "isalpha", "isdecimal",  "isdigit",    "islower",
    "isnumeric",  "isspace",      "isupper",      "join",    "ljust",      "lower",      "lstrip",
    "partition",  "removeprefix", "removesuffix", "replace", "rfind",      "rindex",     "rjust",
    "rpartition", "rsplit",       "rstrip",       "split",   "splitlines", "startswith", "strip",
    "swapcase",   "title",        "upper",        "zfill"};

const Text& needed(const Arguments& given, std::size_t index, const char* what) {
  if (index >= given.positional.size()) throw TemplateError(cat(what, " is missing"));
  return text_of(given.positional[index], what);
}

bool missing_or_none(const Value* value) { return value == nullptr || value->is_none(); }

Value strip(const Text& self, std::string_view name, const Arguments& given) {
  given.check(name, 0, 1, {"chars"});
  const Value* chars = given.get(0, "chars");
  const std::string* set =
      missing_or_none(chars) ? nullptr : &text_of(*chars, "the characters to strip").bytes();
  return Value(stripped(self, set, name != "rstrip", name != "lstrip"));
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

Value split(const Text& self, std::string_view name, const Arguments& given) {
  given.check(name, 0, 2, {"sep", "maxsplit"});
  const bool from_right = name == "rsplit";
  const Value *separator = given.get(0, "sep"), *most_value = given.get(1, "maxsplit");
  std::int64_t most = most_value == nullptr ? -1 : int_of(*most_value, "maxsplit");
  if (missing_or_none(separator)) return Value::list(split_words(self, most, from_right));
  const std::string& sep = text_of(*separator, "the separator").bytes();
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

Value split_lines(const Text& self, const Arguments& given) {
  given.check("splitlines", 0, 1, {"keepends"});
  const Value* keep = given.get(0, "keepends");
  const bool keeps = keep != nullptr && is_true(*keep);
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

Value replace(const Text& self, const Arguments& given) {
  given.check("replace", 2, 3, {"", "", "count"});
  const std::string& from = needed(given, 0, "the text to replace").bytes();
  const Text& to = needed(given, 1, "the replacement");
  const Value* count = given.get(2, "count");
  std::int64_t left = count == nullptr ? -1 : int_of(*count, "count");
  Text out;
  const std::string_view bytes = self.view();
  if (from.empty()) {
    const auto starts = boundaries(bytes);
    for (std::size_t i = 0; i < starts.size(); ++i) {
      if (left != 0) out.append(to);
      if (left > 0) --left;
      if (i + 1 < starts.size()) out.append(self, starts[i], starts[i + 1] - starts[i]);
    }
    return Value(std::move(out));
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
bool reach(const Text& self, const Arguments& given, std::size_t& from, std::size_t& to) {
  from = 0;
  to = self.size();
  if (given.positional.size() < 2) return true;
  const auto starts = boundaries(self.view());
  const auto n = static_cast<std::int64_t>(starts.size()) - 1;
  const auto index = [&](std::size_t which, std::int64_t fallback) {
    if (which >= given.positional.size() || given.positional[which].is_none()) return fallback;
    const std::int64_t at = int_of(given.positional[which], "a bound");
    return at < 0 ? std::max<std::int64_t>(0, at < -n ? 0 : at + n) : at;
  };
  const std::int64_t first = index(1, 0), last = std::min(n, index(2, n));
  if (first > n || first > last) return false;
  from = starts[static_cast<std::size_t>(first)];
  to = starts[static_cast<std::size_t>(last)];
  return true;
}

Value find(const Text& self, std::string_view name, const Arguments& given) {
  given.check(name, 1, 3);
  const std::string& what = needed(given, 0, "the text to find").bytes();
  std::size_t from = 0, to = 0;
  std::size_t at = std::string::npos;
  if (reach(self, given, from, to)) {
    const std::string_view part = self.view().substr(from, to - from);
    at = name[0] == 'r' ? find_last_text(part, what) : find_text(part, what);
  }
  if (at == std::string::npos) {
    if (name.find("index") != std::string::npos) throw TemplateError("substring not found");
    return Value(-1);
  }
  return Value(length(self.view().substr(0, from + at)));
}

Value count(const Text& self, const Arguments& given) {
  given.check("count", 1, 3);
  const std::string& what = needed(given, 0, "the text to count").bytes();
  std::size_t from = 0, to = 0;
  if (!reach(self, given, from, to)) return Value(0);
  const std::string_view part = self.view().substr(from, to - from);
  if (what.empty()) return Value(length(part) + 1);
  std::size_t times = 0;
  for (std::size_t at = find_text(part, what); at != std::string::npos;
       at = find_text(part, what, at + what.size())) {
    ++times;
  }
  return Value(times);
}

Value begins_or_ends(const Text& self, std::string_view name, const Arguments& given) {
  given.check(name, 1, 3);
  std::size_t from = 0, to = 0;
  const bool reachable = reach(self, given, from, to);
  const std::string_view part = self.view().substr(from, to - from);
  const Value& what = given.positional.at(0);
  const std::vector<Value> choices =
      what.is_list(List::Kind::tuple) ? items_of(what) : std::vector<Value>{what};
  for (const Value& choice : choices) {
    const std::string_view text = text_of(choice, cat(name, "'s argument")).view();
    if (reachable && (name == "startswith" ? part.starts_with(text) : part.ends_with(text))) {
      return Value(true);
    }
  }
  return Value(false);
}

Value partition(const Text& self, std::string_view name, const Arguments& given) {
  given.check(name, 1, 1);
  const Text& sep = needed(given, 0, "the separator");
  if (sep.empty()) throw TemplateError("empty separator");
  const bool from_right = name == "rpartition";
  const std::size_t at =
      from_right ? find_last_text(self.view(), sep.view()) : find_text(self.view(), sep.view());
  if (at == std::string::npos) {
    const Value empty{std::string()};
    return from_right ? Value::tuple({empty, empty, Value(self)})
                      : Value::tuple({Value(self), empty, empty});
  }
  return Value::tuple({Value(self.substr(0, at)), Value(self.substr(at, sep.size())),
                       Value(self.substr(at + sep.size()))});
}

Value join(const Text& self, const Arguments& given) {
  given.check("join", 1, 1);
  Text out;
  std::size_t index = 0;
  for (const Value& item : items_of(defined(given.positional.at(0)))) {
    const std::string what = cat("sequence item ", index);
    const Text& text = text_of(item, what);
    if (index++ > 0) out.append(self);
    out.append(text);
  }
  return Value(std::move(out));
}

Value pad(const Text& self, std::string_view name, const Arguments& given) {
  given.check(name, 1, 2);
  const std::int64_t width = int_of(given.positional.at(0), "the width");
  const Text fill = given.positional.size() > 1 ? needed(given, 1, "the fill") : Text(" ");
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

Value zero_fill(const Text& self, const Arguments& given) {
  given.check("zfill", 1, 1);
  const std::int64_t width = int_of(given.positional.at(0), "the width");
  const bool sign = !self.empty() && (self.view()[0] == '-' || self.view()[0] == '+');
  Text out = self.substr(0, sign ? 1 : 0);
  out.append(padded(self.substr(sign ? 1 : 0), width - (sign ? 1 : 0), '>', Text("0")));
  return Value(std::move(out));
}

Value is_kind(const Text& self, std::string_view name) {
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

Value expand_tabs(const Text& self, const Arguments& given) {
  given.check("expandtabs", 0, 1, {"tabsize"});
  const Value* size = given.get(0, "tabsize");
  const std::int64_t width = size == nullptr ? 8 : int_of(*size, "tabsize");
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

}  // namespace

std::size_t find_text(std::string_view text, std::string_view what, std::size_t from) {
  if (from > text.size()) return std::string_view::npos;
  // Linear, other than the standard library's search.
  const void* found = memmem(text.data() + from, text.size() - from, what.data(), what.size());
  if (found == nullptr) return std::string_view::npos;
  return static_cast<std::size_t>(static_cast<const char*>(found) - text.data());
}

std::size_t find_last_text(std::string_view text, std::string_view what, std::size_t end) {
  end = std::min(end, text.size());
  if (what.size() > end) return std::string_view::npos;
  Budget::spend_steps(end / 64 * (what.size() / 64));
  return text.rfind(what, end - what.size());
}

std::vector<std::string_view> string_method_names() {
  return {all_methods.begin(), all_methods.end()};
}

bool is_string_method(std::string_view name) {
  return std::find(all_methods.begin(), all_methods.end(), name) != all_methods.end();
}

Value string_method(const Text& self, std::string_view name, const Arguments& given) {
  if (name == "strip" || name == "lstrip" || name == "rstrip") return strip(self, name, given);
  if (name == "split" || name == "rsplit") return split(self, name, given);
  if (name == "splitlines") return split_lines(self, given);
  if (name == "replace") return replace(self, given);
  if (name == "startswith" || name == "endswith") return begins_or_ends(self, name, given);
  if (name == "find" || name == "rfind" || name == "index" || name == "rindex") {
    return find(self, name, given);
  }
  if (name == "count") return count(self, given);
  if (name == "join") return join(self, given);
  if (name == "format") return Value(brace_format(self, given));
  if (name == "partition" || name == "rpartition") return partition(self, name, given);
  if (name == "ljust" || name == "rjust" || name == "center") return pad(self, name, given);
  if (name == "zfill") return zero_fill(self, given);
  if (name == "expandtabs") return expand_tabs(self, given);
  if (name == "removeprefix" || name == "removesuffix") {
    given.check(name, 1, 1);
    const Text& part = needed(given, 0, "the part to remove");
    const bool prefix = name == "removeprefix";
    const bool there =
        prefix ? self.view().starts_with(part.view()) : self.view().ends_with(part.view());
    if (!there) return Value(self);
    return Value(self.substr(prefix ? part.size() : 0, self.size() - part.size()));
  }
  given.check(name, 0, 0);
  if (name == "lower") return Value(with_case(self, Case::lower));
  if (name == "casefold") return Value(with_case(self, Case::folded));
  if (name == "upper") return Value(with_case(self, Case::upper));
  if (name == "title") return Value(with_case(self, Case::title));
  if (name == "capitalize") return Value(with_case(self, Case::capitalized));
  if (name == "swapcase") return Value(with_case(self, Case::swapped));
  return is_kind(self, name);
}

}  // namespace coppice::chat
