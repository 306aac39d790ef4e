#include "models/tokenizer/counted_pattern.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "base/error.h"
#include "base/utf8.h"

namespace coppice::tokenization {
namespace {

constexpr std::string_view callout = "(?{+})";
// So many items, and so many repetitions of one, are looked at without being reported.
constexpr std::size_t most_items = 32, most_repeats = 4;

bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_octal(char c) { return c >= '0' && c <= '7'; }
bool is_hex(char c) { return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F'); }

/// The bytes of a repetition {n}, {n,}, {,m} or {n,m} at the text's beginning; 0: there is none.
std::size_t interval_bytes(std::string_view text) {
  if (!text.starts_with('{')) return 0;
  std::size_t at = 1, digits = 0;
  for (; at < text.size() && is_digit(text[at]); ++at) ++digits;
  if (at < text.size() && text[at] == ',') {
    for (++at; at < text.size() && is_digit(text[at]); ++at) ++digits;
  }
  return digits > 0 && at < text.size() && text[at] == '}' ? at + 1 : 0;
}

/// An atom of a pattern and the repetitions behind it, as written.
struct Item {
  std::string atom;
  std::string_view repeat;
  bool reported = false;  ///< one more callout behind it

  bool may_be_nothing() const {
    if (repeat.empty() || repeat[0] == '+') return false;
    if (repeat[0] != '{') return true;
    // {0,3} and {,3}, but not {05}, which nobody writes, and not {0}? either.
    return repeat.starts_with("{0,") || repeat.starts_with("{,");
  }
  bool is_optional() const { return repeat == "?" || repeat == "??" || repeat == "?+"; }
  bool is_loop() const {
    if (repeat.empty() || is_optional()) return false;
    const std::size_t bytes = interval_bytes(repeat);
    if (bytes == 0 || bytes != repeat.size()) return true;
    const std::size_t comma = repeat.find(',');
    const std::string_view most = comma == repeat.npos
                                      ? repeat.substr(1, bytes - 2)
                                      : repeat.substr(comma + 1, bytes - comma - 2);
    return most.size() != 1 || static_cast<std::size_t>(most[0] - '0') > most_repeats;
  }
};

class PatternRewriter {
 public:
  PatternRewriter(std::string_view pattern, const std::string& where)
      : rest_(pattern), where_(where) {}

  std::string rewritten() { return alternatives({.top = true, .behind = false}); }

 private:
  struct Place {
    bool top, behind;  ///< outside all groups; in a lookbehind
  };

  std::string alternatives(Place place) {
    std::string out;
    std::vector<Item> branch;
    while (!rest_.empty() && rest_[0] != ')') {
      if (rest_[0] == '|') {
        out += joined(branch, place);
        out += take(1);
        branch.clear();
      } else {
        branch.push_back(item(place));
      }
    }
    return out + joined(branch, place);
  }

  std::string joined(const std::vector<Item>& branch, Place place) const {
    // A loop outside of all groups with nothing behind it that may fail: what it looked at is
    // matched, and no search comes there again.
    std::size_t kept_from = branch.size();
    while (kept_from > 0 && branch[kept_from - 1].may_be_nothing()) --kept_from;
    if (kept_from > 0) --kept_from;
    std::string out;
    for (std::size_t i = 0; i < branch.size(); ++i) {
      const Item& one = branch[i];
      const bool counted =
          place.top ? one.is_loop() && i < kept_from : !one.repeat.empty() && !one.is_optional();
      if (counted) {
        out += cat("(?:", one.atom, callout, ")", one.repeat);
      } else {
        out += cat(one.atom, one.repeat);
      }
      if (one.reported) out += callout;
    }
    return out;
  }

  Item item(Place place) {
    Item out;
    out.reported = ++items_ % most_items == 0 && !place.behind;
    switch (rest_[0]) {
      case '(':
        out.atom = group(place);
        break;
      case '[':
        out.atom = take(class_bytes());
        break;
      case '\\':
        out.atom = take(escape_bytes());
        break;
      default:
        out.atom = take(character_bytes(0));
    }
    const std::string_view from = rest_;
    while (!rest_.empty()) {
      const bool sign = rest_[0] == '*' || rest_[0] == '+' || rest_[0] == '?';
      const std::size_t bytes = sign ? 1 : interval_bytes(rest_);
      if (bytes == 0) break;
      rest_.remove_prefix(bytes);
    }
    out.repeat = from.substr(0, from.size() - rest_.size());
    if (place.behind && !out.repeat.empty() && !out.is_optional()) {
      refuse("a repetition in a lookbehind");
    }
    return out;
  }

  std::string group(Place place) {
    Place inside{.top = false, .behind = place.behind};
    std::size_t bytes = 1;
    if (rest_.starts_with("(*")) refuse("(*");
    if (rest_.starts_with("(?")) {
      const std::string_view kind = rest_.substr(2);
      bytes = 3;
      if (kind.starts_with("<=") || kind.starts_with("<!")) {
        inside.behind = true;
        bytes = 4;
      } else if (kind.starts_with('<')) {
        bytes = to('>');
      } else if (!kind.starts_with(':') && !kind.starts_with('=') && !kind.starts_with('!') &&
                 !kind.starts_with('>')) {
        const std::size_t flags = std::min(kind.find_first_not_of("imWDSP-"), kind.size());
        const char end = flags < kind.size() ? kind[flags] : '\0';
        if (end != ':' && end != ')') refuse(cat("(?", kind.substr(0, character_bytes(2))));
        if (end == ')') return take(flags + 3);
        bytes = flags + 3;
      }
    }
    std::string out = take(bytes);
    out += alternatives(inside);
    return out + take(1);
  }

  std::size_t class_bytes() const {
    std::size_t at = 0, depth = 0;
    do {
      if (at >= rest_.size()) refuse("a class without end");
      if (rest_[at] == '[') {
        ++depth;
        ++at;
        if (at < rest_.size() && rest_[at] == '^') ++at;
        if (at < rest_.size() && rest_[at] == ']') ++at;  // the first is a character
      } else if (rest_[at] == ']') {
        --depth;
        ++at;
      } else {
        at += rest_[at] == '\\' ? 2 : 1;
      }
    } while (depth > 0);
    return std::min(at, rest_.size());
  }

  std::size_t escape_bytes() const {
    const auto run = [&](std::size_t from, std::size_t most, bool (*is)(char)) {
      std::size_t end = from;
      while (end < rest_.size() && end < from + most && is(rest_[end])) ++end;
      return end;
    };
    if (rest_.size() < 2) refuse("a backslash at its end");
    const char kind = rest_[1];
    const bool braced = rest_.size() > 2 && rest_[2] == '{';
    switch (kind) {
      case '1':
      case '2':
      case '3':
      case '4':
      case '5':
      case '6':
      case '7':
      case '8':
      case '9':
      case 'k':
      case 'g':
      case 'R':
      case 'X':
      case 'y':
      case 'Y':
      case 'c':
      case 'C':
      case 'M':
        refuse(rest_.substr(0, 2));
      case '0':
        return run(2, 2, is_octal);
      case 'x':
      case 'o':
      case 'p':
      case 'P': {
        if (braced) {
          const std::size_t bytes = to('}');
          if (kind != 'p' && kind != 'P' &&
              rest_.substr(0, bytes).find_first_of(" \n") != std::string_view::npos) {
            refuse("several characters in one escape");
          }
          return bytes;
        }
        const std::size_t end = kind == 'x' ? run(2, 2, is_hex) : 2;
        if (end == 4 && !is_octal(rest_[2])) refuse("a byte that is no character");
        return end;
      }
      case 'u':
        return run(2, 4, is_hex);
      default:
        return 1 + character_bytes(1);
    }
  }

  std::size_t character_bytes(std::size_t at) const {
    return at >= rest_.size()
               ? 0
               : static_cast<std::size_t>(std::max(1, utf8_sequence(rest_.substr(at))));
  }
  std::size_t to(char end) const {
    const std::size_t at = rest_.find(end);
    if (at == rest_.npos) refuse(cat("no ", std::string(1, end)));
    return at + 1;
  }
  std::string take(std::size_t bytes) {
    const std::string out(rest_.substr(0, bytes));
    rest_.remove_prefix(out.size());
    return out;
  }
  [[noreturn]] void refuse(std::string_view what) const {
    throw_failure(cat(where_, ": what a pattern with ", quote(what),
                      " looks at cannot be counted by coppice; give prompts as token ids with "
                      "--prompt-ids"));
  }

  std::string_view rest_;
  std::size_t items_ = 0;
  const std::string& where_;
};

}  // namespace

std::string counted_pattern(std::string_view pattern, const std::string& where) {
  return PatternRewriter(pattern, where).rewritten();
}

}  // namespace coppice::tokenization
