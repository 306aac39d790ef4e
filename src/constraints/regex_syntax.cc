#include "constraints/regex_syntax.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>
#include <utility>

#include "base/error.h"
#include "models/tokenizer/code_points.h"

namespace coppice::constraints {
namespace {

constexpr int deepest_group = 200;

CodePoints digits() { return {'0', '9'}; }

CodePoints word_characters() {
  CodePoints all('a', 'z');
  all.add('A', 'Z');
  all.add('0', '9');
  all.add('_', '_');
  return all;
}

// White space and line ends of ECMA-262.
CodePoints white_space() {
  CodePoints all('\t', '\r');
  for (const std::uint32_t c :
       {0x20, 0xa0, 0x1680, 0x2028, 0x2029, 0x202f, 0x205f, 0x3000, 0xfeff}) {
    all.add(c, c);
  }
  all.add(0x2000, 0x200a);
  return all;
}

CodePoints line_ends() {
  CodePoints all(0x2028, 0x2029);
  all.add('\n', '\n');
  all.add('\r', '\r');
  return all;
}

// Characters of a general category ("Lu") or of all that begin alike ("L").
CodePoints category(std::string_view name) {
  CodePoints all;
  std::int64_t from = -1;
  for (std::int32_t c = 0; c <= static_cast<std::int32_t>(CodePoints::last) + 1; ++c) {
    const bool is_in = c <= static_cast<std::int32_t>(CodePoints::last) &&
                       std::string_view(utf8proc_category_string(c)).starts_with(name);
    if (is_in && from < 0) from = c;
    if (!is_in && from >= 0) {
      all.add(static_cast<std::uint32_t>(from), static_cast<std::uint32_t>(c - 1));
      from = -1;
    }
  }
  return all;
}

constexpr std::array<std::pair<std::string_view, std::string_view>, 8> long_names = {
    {{"Letter", "L"},
     {"Lowercase_Letter", "Ll"},
     {"Uppercase_Letter", "Lu"},
     {"Number", "N"},
     {"Decimal_Number", "Nd"},
     {"Punctuation", "P"},
     {"Symbol", "S"},
     {"Separator", "Z"}}};

class RegexParser {
 public:
  RegexParser(std::string_view pattern, const std::string& where)
      : pattern_(pattern), left_(pattern), where_(where) {}

  RegexNode parse() {
    RegexNode all = alternatives(0);
    if (!left_.empty()) refuse("a \")\" that closes nothing; remove it, or write \\)");
    return all;
  }

 private:
  using Kind = RegexNode::Kind;

  [[noreturn]] void refuse(const std::string& what) const {
    throw_usage(cat(where_, " ", quote(pattern_), ": at byte ", pattern_.size() - left_.size(),
                    ": ", what));
  }
  [[noreturn]] void refuse_support(const std::string& what) const {
    refuse(cat(what, " not supported; write the expression without"));
  }
  bool take(std::string_view expected) {
    if (!left_.starts_with(expected)) return false;
    left_.remove_prefix(expected.size());
    return true;
  }
  std::uint32_t character() {
    if (left_.empty()) refuse("the expression ends too early; complete it");
    bool is_valid = true;
    const std::uint32_t c = take_utf8(left_, is_valid);
    if (!is_valid) refuse("not UTF-8; save the expression as UTF-8");
    return c;
  }

  RegexNode alternatives(int depth) {
    if (depth > deepest_group) refuse("groups nested too deep; make it simpler");
    RegexNode either{Kind::either, {}, {}};
    do {
      either.parts.push_back(sequence(depth));
    } while (take("|"));
    return either.parts.size() == 1 ? std::move(either.parts.front()) : std::move(either);
  }

  RegexNode sequence(int depth) {
    RegexNode all{Kind::sequence, {}, {}};
    while (!left_.empty() && left_.front() != '|' && left_.front() != ')') {
      RegexNode one = atom(depth);
      repeat(one);
      all.parts.push_back(std::move(one));
    }
    return all;
  }

  void repeat(RegexNode& one) {
    for (;;) {
      std::int32_t lowest = 0, highest = no_limit;
      if (!take_repeat(left_, lowest, highest)) return;
      if (one.kind == Kind::begin || one.kind == Kind::end || one.kind == Kind::ahead ||
          one.kind == Kind::not_ahead) {
        refuse("nothing to repeat; write what is to be repeated before it");
      }
      if (highest != no_limit && lowest > highest) {
        refuse(cat("{", lowest, ",", highest, "} asks for more than it allows; correct it"));
      }
      if (take("+")) refuse_support("possessive repeats are");
      take("?");  // fewest first: the same texts
      RegexNode repeated{Kind::repeat, {}, {}, lowest, highest};
      repeated.parts.push_back(std::move(one));
      one = std::move(repeated);
      if (!left_.empty() &&
          (left_.front() == '*' || left_.front() == '+' || left_.front() == '?')) {
        refuse("a repeat of a repeat; put the first into a group");
      }
    }
  }

  RegexNode atom(int depth) {
    if (take("(")) return group(depth);
    if (take("[")) return {Kind::characters, bracket(), {}};
    if (take("^")) return {Kind::begin, {}, {}};
    if (take("$")) return {Kind::end, {}, {}};
    if (take(".")) return {Kind::characters, line_ends().others(), {}};
    if (left_.front() == '*' || left_.front() == '+' || left_.front() == '?') {
      refuse("nothing to repeat; write \\ before it if it is meant as a character");
    }
    if (take("\\")) return {Kind::characters, escape(false), {}};
    const std::uint32_t c = character();
    return {Kind::characters, CodePoints(c, c), {}};
  }

  RegexNode group(int depth) {
    Kind kind = Kind::sequence;
    if (take("?=")) {
      kind = Kind::ahead;
    } else if (take("?!")) {
      kind = Kind::not_ahead;
    } else if (left_.starts_with("?<=") || left_.starts_with("?<!")) {
      refuse_support("looking behind is");
    } else if (take("?<") || take("?P<")) {
      while (!take(">")) character();
    } else if (!take("?:") && left_.starts_with("?")) {
      refuse_support("this kind of group is");
    }
    RegexNode inner = alternatives(depth + 1);
    if (!take(")")) refuse("a group that is not closed; write \")\"");
    if (kind == Kind::sequence) return inner;
    RegexNode looks{kind, {}, {}};
    looks.parts.push_back(std::move(inner));
    return looks;
  }

  CodePoints bracket() {
    const bool is_negated = take("^");
    CodePoints all;
    while (!take("]")) {
      bool is_class = false;
      const auto one = [&]() -> CodePoints {
        if (take("[:")) refuse_support("named classes such as [:alpha:] are");
        if (take("\\")) {
          is_class = !left_.empty() &&
                     std::string_view("dDwWsSpP").find(left_.front()) != std::string_view::npos;
          return escape(true);
        }
        const std::uint32_t c = character();
        return {c, c};
      };
      const CodePoints first = one();
      const bool is_range = !is_class && left_.size() > 1 && left_[0] == '-' && left_[1] != ']';
      if (!is_range) {
        all.add(first);
        continue;
      }
      take("-");
      const CodePoints second = one();
      if (is_class) {  // not a range after all
        all.add(first);
        all.add('-', '-');
        all.add(second);
        continue;
      }
      const std::uint32_t low = lone(first), high = lone(second);
      if (low > high) refuse("a range that ends before it begins; turn it round");
      all.add(low, high);
    }
    return is_negated ? all.others() : all;
  }

  std::uint32_t lone(const CodePoints& one) const {
    const auto ranges = one.ranges();
    if (ranges.size() != 1) refuse("a range with half of a surrogate pair; write the character");
    return ranges.front().first;
  }

  std::uint32_t hexadecimal(std::size_t digits_wanted) {
    std::uint32_t value = 0;
    for (std::size_t i = 0; i < digits_wanted; ++i) {
      const std::uint32_t c = character();
      const bool is_digit = c >= '0' && c <= '9';
      const std::uint32_t letter = c | 0x20;
      if (!is_digit && (letter < 'a' || letter > 'f')) {
        refuse(cat("not a hexadecimal number of ", digits_wanted, " digits; correct it"));
      }
      value = value * 16 + (is_digit ? c - '0' : letter - 'a' + 10);
    }
    return value;
  }

  CodePoints escape(bool in_bracket) {
    const std::uint32_t c = character();
    std::uint32_t one = c;
    switch (c) {
      case 'd':
        return digits();
      case 'D':
        return digits().others();
      case 'w':
        return word_characters();
      case 'W':
        return word_characters().others();
      case 's':
        return white_space();
      case 'S':
        return white_space().others();
      case 'p':
        return property();
      case 'P':
        return property().others();
      case 'n':
        one = '\n';
        break;
      case 'r':
        one = '\r';
        break;
      case 't':
        one = '\t';
        break;
      case 'f':
        one = '\f';
        break;
      case 'v':
        one = '\v';
        break;
      case '0':
        one = 0;
        break;
      case 'a':
        one = '\a';
        break;
      case 'e':
        one = 0x1b;
        break;
      case 'c':
        one = character() & 31;
        break;
      case 'x':
        one = hexadecimal(2);
        break;
      case 'u':
        one = unicode();
        break;
      case 'b':
      case 'B':
        if (!in_bracket) refuse_support("word boundaries are");
        one = '\b';
        break;
      case 'A':
      case 'Z':
      case 'z':
      case 'G':
        refuse_support("this assertion is");
      case 'k':
        refuse_support("back references are");
      default:
        if (c >= '1' && c <= '9') refuse_support("back references are");
        if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') {
          refuse_support(cat("\\", static_cast<char>(c), " is"));
        }
    }
    return {one, one};
  }

  std::uint32_t unicode() {
    if (take("{")) {
      std::uint32_t value = 0;
      int count = 0;
      for (; !take("}"); ++count) {
        value = value * 16 + hexadecimal(1);
        if (value > CodePoints::last) refuse("no Unicode character; correct its number");
      }
      if (count == 0) refuse("no number in \\u{}; write one");
      return value;
    }
    const std::uint32_t high = hexadecimal(4);
    if (high < 0xd800 || high > 0xdbff || !take("\\u")) return high;
    const std::uint32_t low = hexadecimal(4);
    if (low < 0xdc00 || low > 0xdfff) refuse("half of a surrogate pair; write both halves");
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }

  CodePoints property() {
    std::string name;
    const auto add = [&] {
      tokenization::append_utf8(static_cast<std::int32_t>(character()), name);
    };
    if (take("{")) {
      while (!take("}")) add();
    } else {
      add();
    }
    for (const std::string_view prefix : {"gc=", "General_Category="}) {
      if (name.starts_with(prefix)) name.erase(0, prefix.size());
    }
    for (const auto& [long_name, short_name] : long_names) {
      if (name == long_name) name = short_name;
    }
    const CodePoints all = category(name);
    if (name.empty() || name.size() > 2 || all.ranges().empty()) {
      refuse_support(cat("\\p{", printable(name), "} is"));
    }
    return all;
  }

  std::string_view pattern_, left_;
  const std::string& where_;
};

}  // namespace

bool RegexNode::has_assertion() const {
  return kind == Kind::begin || kind == Kind::end || kind == Kind::ahead ||
         kind == Kind::not_ahead ||
         std::ranges::any_of(parts, [](const RegexNode& part) { return part.has_assertion(); });
}

bool take_repeat(std::string_view& text, std::int32_t& lowest, std::int32_t& highest) {
  if (text.empty()) return false;
  const char sign = text.front();
  std::string_view left = text.substr(1);
  if (sign == '*' || sign == '+' || sign == '?') {
    lowest = sign == '+' ? 1 : 0;
    highest = sign == '?' ? 1 : no_limit;
    text = left;
    return true;
  }
  if (sign != '{') return false;
  const auto number = [&](std::int32_t& value) {
    std::int64_t all = 0;
    bool any = false;
    for (; !left.empty() && left.front() >= '0' && left.front() <= '9'; left.remove_prefix(1)) {
      all = std::min<std::int64_t>(all * 10 + (left.front() - '0'), most_repeats);
      any = true;
    }
    if (any) value = static_cast<std::int32_t>(all);
    return any;
  };
  std::int32_t from = 0, to = no_limit;
  const bool has_from = number(from);
  bool has_to = false;
  if (left.starts_with(",")) {
    left.remove_prefix(1);
    has_to = number(to);
  } else {
    to = from;
  }
  if ((!has_from && !has_to) || !left.starts_with("}")) return false;
  left.remove_prefix(1);
  text = left;
  lowest = from;
  highest = to;
  return true;
}

RegexNode parse_regex(std::string_view pattern, const std::string& where) {
  return RegexParser(pattern, where).parse();
}

}  // namespace coppice::constraints
