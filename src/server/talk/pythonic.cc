#include "server/talk/pythonic.h"

#include <utf8proc.h>

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <utility>

#include "base/hex.h"
#include "server/talk/json_values.h"
#include "server/talk/words.h"

namespace coppice::server {
namespace {

using Json = nlohmann::ordered_json;

constexpr int deepest = 100;

bool is_name(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '-';
}

// `c` is a character.
void append_utf8(std::string& text, std::uint32_t c) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto count = utf8proc_encode_char(static_cast<utf8proc_int32_t>(c), bytes.data());
  text.append(bytes.begin(), bytes.begin() + count);
}

class Parser {
 public:
  explicit Parser(std::string_view text) : left_(text) {}

  std::optional<std::vector<PythonicCall>> calls() {
    std::vector<PythonicCall> all;
    if (!take('[')) return {};
    do {
      PythonicCall call;
      Json arguments = Json::object();
      if (!take_name(call.name) || !take('(') || !named(arguments)) return {};
      call.arguments = to_text(arguments);
      all.push_back(std::move(call));
    } while (take(','));
    if (!take(']')) return {};
    skip();
    if (!left_.empty()) return {};
    return all;
  }

  std::optional<std::string> value() {
    Json value;
    if (!parse_value(value, 0)) return {};
    skip();
    if (!left_.empty()) return {};
    return to_text(value);
  }

 private:
  void skip() {
    while (!left_.empty() && is_white(left_.front())) left_.remove_prefix(1);
  }
  bool take(char c) {
    skip();
    if (left_.empty() || left_.front() != c) return false;
    left_.remove_prefix(1);
    return true;
  }
  bool take_name(std::string& name) {
    skip();
    while (!left_.empty() && is_name(left_.front())) {
      name.push_back(left_.front());
      left_.remove_prefix(1);
    }
    return !name.empty();
  }
  // The parenthesis is open.
  bool named(Json& arguments) {
    while (!take(')')) {
      if (!arguments.empty() && !take(',')) return false;
      if (take(')')) return true;
      std::string name;
      Json value;
      if (!take_name(name) || !take('=') || !parse_value(value, 0)) return false;
      if (arguments.contains(name)) return false;
      arguments[name] = std::move(value);
    }
    return true;
  }
  bool parse_value(Json& value, int depth) {
    skip();
    if (left_.empty() || depth > deepest) return false;
    const char c = left_.front();
    if (c == '"' || c == '\'') return string(value);
    if (take('[')) return items(value, ']', depth);
    if (take('(')) return items(value, ')', depth);
    if (take('{')) return members(value, depth);
    return word(value);
  }
  bool items(Json& value, char close, int depth) {
    value = Json::array();
    while (!take(close)) {
      if (!value.empty() && !take(',')) return false;
      if (take(close)) return true;
      Json item;
      if (!parse_value(item, depth + 1)) return false;
      value.push_back(std::move(item));
    }
    return true;
  }
  bool members(Json& value, int depth) {
    value = Json::object();
    while (!take('}')) {
      if (!value.empty() && !take(',')) return false;
      if (take('}')) return true;
      Json key, item;
      if (!parse_value(key, depth + 1) || !key.is_string() || !take(':')) return false;
      if (!parse_value(item, depth + 1)) return false;
      value[key.get<std::string>()] = std::move(item);
    }
    return true;
  }
  bool word(Json& value) {
    std::string text;
    while (!left_.empty() && (is_name(left_.front()) || left_.front() == '+')) {
      text.push_back(left_.front());
      left_.remove_prefix(1);
    }
    if (text == "True") text = "true";
    if (text == "False") text = "false";
    if (text == "None") text = "null";
    value = Json::parse(text, nullptr, false);
    return !value.is_discarded();
  }
  bool string(Json& value) {
    const char quote = left_.front();
    left_.remove_prefix(1);
    std::string text;
    for (;;) {
      if (left_.empty()) return false;
      const char c = left_.front();
      left_.remove_prefix(1);
      if (c == quote) break;
      if (c != '\\') {
        text.push_back(c);
      } else if (!escape(text)) {
        return false;
      }
    }
    value = std::move(text);
    return true;
  }
  bool escape(std::string& text) {
    if (left_.empty()) return false;
    const char c = left_.front();
    left_.remove_prefix(1);
    constexpr std::string_view names = "abfnrtv0", bytes{"\a\b\f\n\r\t\v\0", 8};
    if (const std::size_t at = names.find(c); at != names.npos) {
      text.push_back(bytes[at]);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      std::uint32_t number = 0;
      if (!hex(c == 'x' ? 2 : c == 'u' ? 4 : 8, number)) return false;
      // JSON spells other characters in two halves.
      if (number >= 0xd800 && number < 0xdc00 && left_.starts_with("\\u")) {
        left_.remove_prefix(2);
        std::uint32_t low = 0;
        if (!hex(4, low) || low < 0xdc00 || low >= 0xe000) return false;
        number = 0x10000 + ((number - 0xd800) << 10) + (low - 0xdc00);
      }
      if (number > 0x10ffff || (number >= 0xd800 && number < 0xe000)) return false;
      append_utf8(text, number);
    } else if (c != '\n') {  // a line that goes on
      if (c != '\\' && c != '\'' && c != '"' && c != '/') text.push_back('\\');
      text.push_back(c);
    }
    return true;
  }
  bool hex(int digits, std::uint32_t& number) {
    for (; digits > 0; --digits) {
      if (left_.empty()) return false;
      const int digit = hex_digit(left_.front());
      if (digit < 0) return false;
      number = number << 4 | static_cast<std::uint32_t>(digit);
      left_.remove_prefix(1);
    }
    return true;
  }

  std::string_view left_;
};

}  // namespace

bool PythonicScanner::feed(char c) {
  if (!begun_) {
    begun_ = true;
    depth_ = 1;
    return c == '[';
  }
  if (!has_name_) {
    if (is_name(c)) {
      name_.push_back(c);
      return true;
    }
    if (is_white(c) && name_.empty()) return true;
    has_name_ = true;
    depth_ += 1;
    return c == '(' && !name_.empty();
  }
  if (quote_ != 0) {
    if (is_escaped_) {
      is_escaped_ = false;
    } else if (c == '\\') {
      is_escaped_ = true;
    } else if (c == quote_) {
      quote_ = 0;
    }
    return true;
  }
  if (c == '"' || c == '\'') {
    quote_ = c;
  } else if (c == '(' || c == '[' || c == '{') {
    depth_ += 1;
  } else if (c == ')' || c == ']' || c == '}') {
    depth_ -= 1;
  }
  return true;
}

std::optional<std::vector<PythonicCall>> parse_pythonic(std::string_view list) {
  return Parser(list).calls();
}

std::optional<std::string> parse_python_value(std::string_view literal) {
  return Parser(literal).value();
}

}  // namespace coppice::server
