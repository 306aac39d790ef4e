#include "constraints/gbnf.h"

#include <algorithm>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/error.h"
#include "constraints/code_points.h"
#include "constraints/regex_syntax.h"
#include "constraints/schema.h"
#include "constraints/vocabulary.h"
#include "models/tokenizer/code_points.h"

namespace coppice::constraints {
namespace {

constexpr int deepest_parentheses = 200;

class GbnfParser {
 public:
  GbnfParser(Expressions& expressions, std::string_view grammar)
      : x_(expressions), grammar_(grammar), left_(grammar) {}

  Expr parse() {
    for (skip(true); !left_.empty(); skip(true)) rule();
    for (const auto& [name, number] : rules_) {
      if (!x_.is_defined(number)) {
        throw_usage(cat("grammar: rule ", quote(name), " is used and not defined; define it"));
      }
    }
    const auto root = rules_.find("root");
    if (root == rules_.end()) throw_usage("grammar: no rule \"root\"; define it");
    return x_.rule(root->second);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    const auto end = grammar_.end() - static_cast<std::ptrdiff_t>(left_.size());
    throw_usage(cat("grammar: line ", 1 + std::count(grammar_.begin(), end, '\n'), ": ", what));
  }
  bool take(std::string_view expected) {
    if (!left_.starts_with(expected)) return false;
    left_.remove_prefix(expected.size());
    return true;
  }
  void skip(bool and_lines) {
    while (!left_.empty()) {
      const char c = left_.front();
      if (c == '#') {
        left_.remove_prefix(std::min(left_.find('\n'), left_.size()));
      } else if (c == ' ' || c == '\t' || (and_lines && (c == '\n' || c == '\r'))) {
        left_.remove_prefix(1);
      } else {
        return;
      }
    }
  }
  static bool is_name(char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
  }
  std::string name() {
    std::string text;
    while (!left_.empty() && is_name(left_.front())) {
      text.push_back(left_.front());
      left_.remove_prefix(1);
    }
    if (text.empty()) refuse("a rule's name is expected; write letters, digits and dashes");
    return text;
  }
  std::int32_t number_of(const std::string& rule_name) {
    const auto [entry, is_new] = rules_.try_emplace(rule_name, 0);
    if (is_new) entry->second = x_.declare("grammar: rule " + quote(rule_name));
    return entry->second;
  }

  void rule() {
    const std::string rule_name = name();
    const std::int32_t number = number_of(rule_name);
    skip(false);
    if (!take("::=")) refuse(cat("::= is expected behind ", quote(rule_name), "; write it"));
    if (x_.is_defined(number))
      refuse(cat("rule ", quote(rule_name), " is defined twice; rename one"));
    skip(true);
    x_.define(number, alternatives(0));
    skip(false);
    if (!left_.empty() && left_.front() != '\n' && left_.front() != '\r') {
      refuse(cat("unexpected ", quote(left_.substr(0, 1)), "; begin a new line, or correct it"));
    }
  }

  Expr alternatives(int depth) {
    if (depth > deepest_parentheses) refuse("parentheses nested too deep; make rules of them");
    std::vector<Expr> all;
    for (;;) {
      all.push_back(sequence(depth));
      // A rule's next alternative may begin a line.
      const std::string_view before = left_;
      skip(true);
      if (!take("|")) {
        if (depth == 0) left_ = before;
        break;
      }
      skip(true);
    }
    return x_.either(std::move(all));
  }

  Expr sequence(int depth) {
    std::vector<Expr> parts;
    for (;;) {
      Expr one = nothing;
      if (take("\"")) {
        std::string text;
        while (!take("\"")) {
          tokenization::append_utf8(static_cast<std::int32_t>(character("a text")), text);
        }
        one = x_.text(text);
      } else if (take("[")) {
        one = utf8(x_, bracket());
      } else if (take("(")) {
        skip(true);
        one = alternatives(depth + 1);
        skip(true);
        if (!take(")")) refuse("a parenthesis that is not closed; write \")\"");
      } else if (take(".")) {
        one = utf8(x_, CodePoints::all());
      } else if (take("%")) {
        one = special(depth);
      } else if (!left_.empty() && is_name(left_.front())) {
        one = x_.rule(number_of(name()));
      } else if (!left_.empty() && (left_.front() == '<' || left_.front() == '!')) {
        refuse("llama.cpp's tokens are not supported; write %token(\"the text\")");
      } else {
        return x_.sequence(parts);
      }
      skip(depth > 0);
      parts.push_back(repeated(one));
      skip(depth > 0);
    }
  }

  // What GBNF has no form for.
  Expr special(int depth) {
    if (take("json")) {
      skip(true);
      return compile_schema(x_, schema(), JsonSpace::some);
    }
    const bool is_token = take("token"), is_not = !is_token && take("not");
    skip(true);
    if ((!is_token && !is_not) || !take("(")) {
      refuse("after %, json, token( or not( is expected; correct it");
    }
    skip(true);
    const Expr part = alternatives(depth + 1);
    skip(true);
    if (!take(")")) refuse("a parenthesis that is not closed; write \")\"");
    if (is_token) return x_.either({part, x_.concat(x_.text({&added_token_mark, 1}), part)});
    if (!x_.regular(part)) refuse("%not(...) of a rule is not supported; write its text inside");
    const Expr characters = x_.repeat(utf8(x_, CodePoints::all()), 0, no_limit);
    return x_.both({characters, x_.complement(part)});
  }

  // An object with all that it holds.
  std::string_view schema() {
    const std::string_view all = left_;
    int open = 0;
    bool in_text = false;
    while (!left_.empty()) {
      const char c = left_.front();
      if (open == 0 && c != '{') break;
      const bool is_escape = in_text && c == '\\';
      if (c == '"') in_text = !in_text;
      if (!in_text && (c == '{' || c == '}')) open += c == '{' ? 1 : -1;
      left_.remove_prefix(is_escape ? std::min<std::size_t>(2, left_.size()) : 1);
      if (open == 0) return all.substr(0, all.size() - left_.size());
    }
    refuse("%json is followed by no schema in braces; write one");
  }

  Expr repeated(Expr one) {
    for (;; skip(false)) {
      std::int32_t lowest = 0, highest = no_limit;
      if (!take_repeat(left_, lowest, highest)) return one;
      if (highest != no_limit && lowest > highest) {
        refuse(cat("{", lowest, ",", highest, "} asks for more than it allows; correct it"));
      }
      one = x_.repeat(one, lowest, highest);
    }
  }

  CodePoints bracket() {
    const bool is_negated = take("^");
    CodePoints all;
    while (!take("]")) {
      const std::uint32_t low = character("a set");
      std::uint32_t high = low;
      if (left_.size() > 1 && left_[0] == '-' && left_[1] != ']') {
        take("-");
        high = character("a set");
      }
      if (low > high) refuse("a range that ends before it begins; turn it round");
      all.add(low, high);
    }
    return is_negated ? all.others() : all;
  }

  std::uint32_t character(const char* what) {
    if (left_.empty() || left_.front() == '\n') refuse(cat(what, " that is not closed; close it"));
    if (take("\\")) {
      if (left_.empty()) refuse(cat(what, " that is not closed; close it"));
      const char c = left_.front();
      left_.remove_prefix(1);
      switch (c) {
        case 'n':
          return '\n';
        case 'r':
          return '\r';
        case 't':
          return '\t';
        case 'x':
          return hexadecimal(2);
        case 'u':
          return hexadecimal(4);
        case 'U':
          return hexadecimal(8);
        case '\\':
        case '"':
        case '[':
        case ']':
        case '-':
        case '^':
          return static_cast<unsigned char>(c);
        default:
          refuse(cat("unknown escape \\", printable({&c, 1}), "; correct it"));
      }
    }
    bool is_valid = true;
    const std::uint32_t c = take_utf8(left_, is_valid);
    if (!is_valid) refuse("not UTF-8; save the grammar as UTF-8");
    return c;
  }

  std::uint32_t hexadecimal(std::size_t digits) {
    std::uint64_t value = 0;
    for (std::size_t i = 0; i < digits; ++i) {
      const char c = left_.empty() ? ' ' : left_.front();
      const bool is_digit = c >= '0' && c <= '9';
      const char letter = static_cast<char>(c | 0x20);
      if (!is_digit && (letter < 'a' || letter > 'f')) {
        refuse(cat("not a hexadecimal number of ", digits, " digits; correct it"));
      }
      value = value * 16 + static_cast<std::uint64_t>(is_digit ? c - '0' : letter - 'a' + 10);
      left_.remove_prefix(1);
    }
    if (value > CodePoints::last || (value >= 0xd800 && value < 0xe000)) {
      refuse("no Unicode character; correct its number");
    }
    return static_cast<std::uint32_t>(value);
  }

  Expressions& x_;
  std::string_view grammar_, left_;
  std::unordered_map<std::string, std::int32_t> rules_;
};

}  // namespace

Expr compile_gbnf(Expressions& expressions, std::string_view grammar) {
  return GbnfParser(expressions, grammar).parse();
}

}  // namespace coppice::constraints
