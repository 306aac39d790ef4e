#include "chat/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "base/error.h"
#include "chat/unicode.h"
#include "chat/value.h"

namespace coppice::chat {
namespace {

constexpr std::size_t none = std::string_view::npos;

// Every kind of line end is "\n" to Jinja.
std::string with_newlines(std::string_view source) {
  std::string text;
  for (std::size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (!text.empty() && text.back() == '\n') text.pop_back();
  return text;
}

bool is_name_start(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<unsigned char>(c) >= 0x80;
}
bool is_decimal(char c) { return c >= '0' && c <= '9'; }

class Lexer {
 public:
  explicit Lexer(std::string_view source) : text_(with_newlines(source)), rest_(text_) {}

  std::vector<Token> run() {
    while (!rest_.empty()) outside();
    add(Token::Kind::end, "");
    return std::move(tokens_);
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw TemplateError(cat("line ", line_, ": ", what));
  }

  void add(Token::Kind kind, std::string text) {
    Token token;
    token.kind = kind;
    token.text = std::move(text);
    token.line = line_;
    tokens_.push_back(std::move(token));
  }

  void skip(std::size_t count) {
    line_ +=
        static_cast<int>(std::count(rest_.begin(), rest_.begin() + static_cast<long>(count), '\n'));
    if (count > 0) at_line_start_ = rest_[count - 1] == '\n';
    rest_.remove_prefix(count);
  }

  static std::size_t spaces(std::string_view text) {
    std::size_t count = 0;
    while (count < text.size()) {
      const CodePoint c = first_code_point(text.substr(count));
      if (!is_space(c.value)) break;
      count += c.bytes;
    }
    return count;
  }

  // Text before a tag whose sign is '-', '+' or nothing.
  void add_text(std::string_view text, char sign, bool variable) {
    if (sign == '-') {
      while (!text.empty()) {
        const CodePoint c = last_code_point(text);
        if (!is_space(c.value)) break;
        text.remove_suffix(c.bytes);
      }
    } else if (sign != '+' && !variable) {
      const std::size_t newline = text.rfind('\n');
      const std::size_t line = newline == none ? 0 : newline + 1;
      if ((line > 0 || at_line_start_) && spaces(text.substr(line)) == text.size() - line) {
        text = text.substr(0, line);
      }
    }
    if (!text.empty()) add(Token::Kind::text, std::string(text));
  }

  // Behind a block's or comment's end: what trim_blocks and '-' take with them.
  void after_end(char sign, bool block) {
    if (sign == '-') {
      skip(spaces(rest_));
    } else if (sign != '+' && block && !rest_.empty() && rest_[0] == '\n') {
      skip(1);
    }
  }

  static std::size_t find_tag(std::string_view text) {
    for (std::size_t at = text.find('{'); at != none; at = text.find('{', at + 1)) {
      if (at + 1 < text.size() &&
          (text[at + 1] == '{' || text[at + 1] == '%' || text[at + 1] == '#')) {
        return at;
      }
    }
    return none;
  }

  void outside() {
    const std::size_t at = find_tag(rest_);
    if (at == none) {
      add(Token::Kind::text, std::string(rest_));
      skip(rest_.size());
      return;
    }
    const char kind = rest_[at + 1];
    char sign = at + 2 < rest_.size() ? rest_[at + 2] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    add_text(rest_.substr(0, at), sign, kind == '{');
    skip(at + 2 + (sign != '\0' ? 1 : 0));
    if (kind == '#') {
      comment();
    } else if (kind == '%') {
      if (!raw()) tag(true);
    } else {
      tag(false);
    }
  }

  void comment() {
    const std::size_t end = rest_.find("#}");
    if (end == none) fail("a comment is not closed");
    char sign = end > 0 ? rest_[end - 1] : '\0';
    if (sign != '-' && sign != '+') sign = '\0';
    skip(end + 2);
    after_end(sign, true);
  }

  // The words `name` and a block's end; its length, or none. `sign` is that before the end.
  static std::size_t block_word(std::string_view text, std::string_view name, char& sign) {
    std::size_t at = spaces(text);
    if (text.substr(at, name.size()) != name) return none;
    at += name.size();
    at += spaces(text.substr(at));
    sign = '\0';
    if (at < text.size() && (text[at] == '-' || text[at] == '+')) sign = text[at++];
    return text.substr(at, 2) == "%}" ? at + 2 : none;
  }

  bool raw() {
    char sign = '\0';
    const std::size_t begin = block_word(rest_, "raw", sign);
    if (begin == none || sign == '+') return false;
    skip(begin);
    after_end(sign, false);  // the one tag whose line end stays
    for (std::size_t at = rest_.find("{%"); at != none; at = rest_.find("{%", at + 2)) {
      std::size_t word = at + 2;
      char before = '\0';
      if (word < rest_.size() && (rest_[word] == '-' || rest_[word] == '+')) before = rest_[word++];
      const std::size_t end = block_word(rest_.substr(word), "endraw", sign);
      if (end == none) continue;
      add_text(rest_.substr(0, at), before, false);
      skip(word + end);
      after_end(sign, true);
      return true;
    }
    fail("raw has no endraw");
  }

  void tag(bool block) {
    add(block ? Token::Kind::block_begin : Token::Kind::variable_begin, "");
    std::string open;  // brackets
    while (true) {
      skip(spaces(rest_));
      if (rest_.empty()) fail("a tag is not closed");
      if (open.empty() && at_end(block)) return;
      if (is_name_start(rest_[0])) {
        name();
      } else if (is_decimal(rest_[0])) {
        number();
      } else if (rest_[0] == '"' || rest_[0] == '\'') {
        string();
      } else {
        symbol(open);
      }
    }
  }

  bool at_end(bool block) {
    const std::string_view end = block ? "%}" : "}}";
    char sign = rest_[0];
    if (sign != '-' && !(sign == '+' && block)) sign = '\0';
    if (rest_.substr(sign != '\0' ? 1 : 0, 2) != end) return false;
    add(block ? Token::Kind::block_end : Token::Kind::variable_end, "");
    skip(2 + (sign != '\0' ? 1 : 0));
    after_end(sign, block);
    return true;
  }

  void name() {
    std::size_t end = 1;
    while (end < rest_.size() && (is_name_start(rest_[end]) || is_decimal(rest_[end]))) ++end;
    add(Token::Kind::name, std::string(rest_.substr(0, end)));
    skip(end);
  }

  std::size_t digits(std::size_t from, std::string& out) const {
    while (from < rest_.size() &&
           (is_decimal(rest_[from]) ||
            (rest_[from] == '_' && from + 1 < rest_.size() && is_decimal(rest_[from + 1])))) {
      if (rest_[from] != '_') out += rest_[from];
      ++from;
    }
    return from;
  }

  void number() {
    if (rest_[0] == '0' && rest_.size() > 2 && std::string_view("xXoObB").find(rest_[1]) != none) {
      based_number();
      return;
    }
    std::string text;
    std::size_t end = digits(0, text);
    bool real = false;
    // In a.0.1 the numbers are indices.
    const bool index = !tokens_.empty() && tokens_.back().kind == Token::Kind::symbol &&
                       tokens_.back().text == ".";
    if (!index && end + 1 < rest_.size() && rest_[end] == '.' && is_decimal(rest_[end + 1])) {
      real = true;
      text += '.';
      end = digits(end + 1, text);
    }
    if (!index && end < rest_.size() && (rest_[end] == 'e' || rest_[end] == 'E')) {
      std::size_t power = end + 1;
      std::string exponent = "e";
      if (power < rest_.size() && (rest_[power] == '+' || rest_[power] == '-')) {
        exponent += rest_[power++];
      }
      if (power < rest_.size() && is_decimal(rest_[power])) {
        real = true;
        end = digits(power, exponent);
        text += exponent;
      }
    }
    add(real ? Token::Kind::real : Token::Kind::integer, text);
    const auto parsed =
        real ? std::from_chars(text.data(), text.data() + text.size(), tokens_.back().real).ec
             : std::from_chars(text.data(), text.data() + text.size(), tokens_.back().integer).ec;
    if (parsed != std::errc{}) fail(cat("number ", quote(text), " is out of range"));
    skip(end);
  }

  void based_number() {
    const char kind = static_cast<char>(rest_[1] | 0x20);
    const int base = kind == 'x' ? 16 : kind == 'o' ? 8 : 2;
    add(Token::Kind::integer, "");
    const auto [end, error] = std::from_chars(rest_.data() + 2, rest_.data() + rest_.size(),
                                              tokens_.back().integer, base);
    if (error != std::errc{}) fail("a number is out of range or has no digits");
    skip(static_cast<std::size_t>(end - rest_.data()));
  }

  void string() {
    const char quote_sign = rest_[0];
    std::string text;
    std::size_t at = 1;
    for (;; ++at) {
      if (at >= rest_.size()) fail("a string is not closed");
      if (rest_[at] == quote_sign) break;
      if (rest_[at] == '\\') {
        at = escape(at + 1, text);
      } else {
        text += rest_[at];
      }
    }
    add(Token::Kind::string, std::move(text));
    skip(at + 1);
  }

  // Resolves the escape whose letter is at `at`, as Python's unicode-escape does; the last byte.
  std::size_t escape(std::size_t at, std::string& out) const {
    if (at >= rest_.size()) fail("a string is not closed");
    constexpr std::string_view letters = "\n\\'\"abfnrtv";
    constexpr std::array<const char*, 11> meanings = {"",   "\\", "'",  "\"", "\a", "\b",
                                                      "\f", "\n", "\r", "\t", "\v"};
    const char c = rest_[at];
    if (const std::size_t i = letters.find(c); i != none) {
      out += meanings[i];
      return at;
    }
    const std::size_t hex_digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    if (hex_digits > 0) {
      std::uint32_t code = 0;
      const std::string_view digits = rest_.substr(at + 1, hex_digits);
      const auto [end, error] =
          std::from_chars(digits.data(), digits.data() + digits.size(), code, 16);
      if (error != std::errc{} || end != digits.data() + hex_digits) {
        fail(cat("escape \\", c, " needs ", hex_digits, " hexadecimal digits"));
      }
      out += to_utf8(code);
      return at + hex_digits;
    }
    if (c >= '0' && c <= '7') {
      char32_t code = 0;
      std::size_t count = 0;
      for (; count < 3 && at + count < rest_.size() && rest_[at + count] >= '0' &&
             rest_[at + count] <= '7';
           ++count) {
        code = code * 8 + static_cast<char32_t>(rest_[at + count] - '0');
      }
      out += to_utf8(code);
      return at + count - 1;
    }
    out += '\\';
    out += c;
    return at;
  }

  void symbol(std::string& open) {
    constexpr std::array<std::string_view, 26> symbols = {
        "//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
        "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ",", ";"};
    for (const std::string_view symbol : symbols) {
      if (rest_.substr(0, symbol.size()) != symbol) continue;
      const char c = symbol[0];
      if (c == '(' || c == '[' || c == '{') open += c;
      if (c == ')' || c == ']' || c == '}') {
        const char partner = c == ')' ? '(' : c == ']' ? '[' : '{';
        if (open.empty() || open.back() != partner) fail(cat("unexpected '", c, "'"));
        open.pop_back();
      }
      add(Token::Kind::symbol, std::string(symbol));
      skip(symbol.size());
      return;
    }
    fail(cat("unexpected character ", quote(rest_.substr(0, first_code_point(rest_).bytes))));
  }

  std::string text_;
  std::string_view rest_;
  std::vector<Token> tokens_;
  int line_ = 1;
  bool at_line_start_ = true;
};

}  // namespace

std::vector<Token> lex(std::string_view source) { return Lexer(source).run(); }

}  // namespace coppice::chat
