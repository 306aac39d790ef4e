// Filters that make text or numbers of one value.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "chat/arguments.h"
#include "chat/interpreter.h"
#include "chat/json.h"
#include "chat/python_text.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

Value method(const Value& value, std::string_view name, const Arguments& given = {}) {
  return string_method(str(value), name, given);
}

Value upper(Interpreter&, const Value& value, const Arguments& given) {
  return method(value, "upper", given);
}
Value lower(Interpreter&, const Value& value, const Arguments& given) {
  return method(value, "lower", given);
}
Value capitalize(Interpreter&, const Value& value, const Arguments& given) {
  return method(value, "capitalize", given);
}

// Unlike str.title, only blanks, hyphens and opening brackets begin a word.
Value title(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "title"));
  const Text text = str(value);
  Text out;
  const auto begins = [](char32_t c) {
    return is_space(c) || c == '-' || c == '(' || c == '{' || c == '[' || c == '<';
  };
  std::size_t word = 0;
  for (std::size_t at = 0; at <= text.size();) {
    const CodePoint c =
        at < text.size() ? first_code_point(text.view().substr(at)) : CodePoint{' ', 1};
    if (begins(c.value)) {
      out.append(with_case(text.substr(word, at - word), Case::capitalized));
      out.append(text, at, c.bytes);
      word = at + c.bytes;
    }
    at += c.bytes;
  }
  return Value(std::move(out));
}

Value trim(Interpreter&, const Value& value, const Arguments& given) {
  const Bound words(given, "trim", {"chars"});
  const Text* set = words.unless_none(0) != nullptr ? &words.text(0) : nullptr;
  return Value(stripped(str(value), set, true, true));
}

Value replace(Interpreter&, const Value& value, const Arguments& given) {
  const Bound words(given, "replace", {"old", "new", "count"}, 2);
  Arguments rest;
  rest.positional = {Value(str(words[0])), Value(str(words[1]))};
  if (const Value* count = words.unless_none(2)) rest.positional.push_back(*count);
  return method(value, "replace", rest);
}

Value string(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "string"));
  return value.is_string() ? value : Value(str(value));
}
Value safe(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "safe"));
  return Value(str(value), true);
}
Value escape(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "escape"));
  return value.is_safe() ? value : Value(html_escaped(str(value)), true);
}
Value force_escape(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "forceescape"));
  return Value(html_escaped(str(value)), true);
}

Value indent(Interpreter&, const Value& value, const Arguments& given) {
  const Bound words(given, "indent", {"width", "first", "blank"});
  const Value* width = words.get(0);
  const Text step = width != nullptr && width->is_string() ? width->text()
                                                           : padded(Text(), words.count(0, 4), '>');
  Text text = text_of(value, "what is indented");
  text.append("\n");
  Arguments keep_ends;
  keep_ends.positional.emplace_back(true);
  const Value split = string_method(text, "splitlines");
  const Value with_ends = string_method(text, "splitlines", keep_ends);
  const auto& lines = split.as_list().items;
  Text out;
  if (words.flag(1)) out.append(step);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) {
      const bool foreign =
          with_ends.as_list().items[i - 1].text().foreign_at(lines[i - 1].text().size());
      out.append(std::string_view("\n"), foreign);
      if (words.flag(2) || !lines[i].text().empty()) out.append(step);
    }
    out.append(lines[i].text());
  }
  return Value(std::move(out));
}

Value truncate(Interpreter&, const Value& value, const Arguments& given) {
  const Bound words(given, "truncate", {"length", "killwords", "end", "leeway"});
  const Text text = value.is_undefined() ? Text() : text_of(value, "what is truncated");
  const Text end = words.text(2, "...");
  const std::int64_t most = words.count(0, 255), leeway = words.count(3, 5);
  const auto end_size = static_cast<std::int64_t>(length(end.view()));
  if (most < end_size) throw TemplateError(cat("expected length >= ", end_size, ", got ", most));
  if (leeway < 0) throw TemplateError(cat("expected leeway >= 0, got ", leeway));
  const auto size = static_cast<std::int64_t>(length(text.view()));
  if (size <= most + leeway) return Value(text);
  Text cut = text.substr(0, offset(text.view(), static_cast<std::size_t>(most - end_size)));
  if (!words.flag(1)) {
    const std::size_t space = cut.view().rfind(' ');
    if (space != std::string_view::npos) cut = cut.substr(0, space);
  }
  cut.append(end);
  return Value(std::move(cut));
}

Value center(Interpreter&, const Value& value, const Arguments& given) {
  Arguments width;
  width.positional.emplace_back(Bound(given, "center", {"width"}).count(0, 80));
  return method(value, "center", width);
}

Value word_count(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "wordcount"));
  const Text text = str(value);
  std::size_t words = 0;
  bool inside = false;
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.view().substr(at));
    const bool letter = is_alpha(c.value) || is_digit(c.value) || c.value == '_';
    if (letter && !inside) ++words;
    inside = letter;
    at += c.bytes;
  }
  return Value(words);
}

Value format(Interpreter&, const Value& value, const Arguments& given) {
  if (!given.named.empty() && !given.positional.empty()) {
    throw TemplateError("can't handle positional and keyword arguments at the same time");
  }
  if (given.named.empty()) {
    return Value(printf_format(str(value), Value::tuple(given.positional)));
  }
  std::vector<std::pair<Value, Value>> items;
  for (const auto& [name, item] : given.named) items.emplace_back(Value(name), item);
  return Value(printf_format(str(value), Value::dict(std::move(items))));
}

Value url_encode(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "urlencode"));
  if (value.is_dict() || value.is_list()) {
    throw TemplateError("urlencode takes a text, not a list or mapping");
  }
  constexpr std::string_view kept = "_.-~/";
  const Text text = str(value);
  Text out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const auto c = static_cast<unsigned char>(text.view()[at]);
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       kept.find(static_cast<char>(c)) != std::string_view::npos;
    constexpr char digits[] = "0123456789ABCDEF";
    if (plain) {
      out.append(text, at, 1);
    } else {
      out.append({std::string{'%', digits[c >> 4], digits[c & 15]}}, text.foreign_at(at));
    }
  }
  return Value(std::move(out));
}

Value absolute(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "abs"));
  if (!defined(value).is_number()) throw TemplateError("abs needs a number");
  if (value.is_float()) return Value(std::fabs(value.as_double()));
  return value.as_int() < 0 ? binary("-", Value(0), value) : Value(value.as_int());
}

// float() of a text; false if it is none.
bool to_real(const Value& value, double& out) {
  if (value.is_number()) {
    out = value.as_double();
    return true;
  }
  if (!value.is_string()) return false;
  const Text text = stripped(value.text(), nullptr, true, true);
  std::string_view digits = text.view();
  if (!digits.empty() && digits[0] == '+') digits.remove_prefix(1);
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), out);
  return error == std::errc{} && end == digits.data() + digits.size() && !digits.empty();
}

Value to_int(Interpreter&, const Value& value, const Arguments& given) {
  const Bound words(given, "int", {"default", "base"});
  if (defined(value).is_int() || value.is_bool()) return Value(value.as_int());
  if (value.is_string()) {
    const Text text = stripped(value.text(), nullptr, true, true);
    std::string_view digits = text.view();
    std::int64_t whole = 0;
    const int base = static_cast<int>(std::clamp<std::int64_t>(words.count(1, 10), 2, 36));
    if (digits.size() > 1 && digits[0] == '+' && digits[1] != '-') digits.remove_prefix(1);
    if (base == 16 && digits.substr(0, 2) == "0x") digits.remove_prefix(2);
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), whole, base);
    if (error == std::errc{} && end == digits.data() + digits.size() && !digits.empty()) {
      return Value(whole);
    }
  }
  double real = 0.0;
  if (to_real(value, real) && !std::isnan(real)) return Value(whole_number(real));
  return words.get(0) != nullptr ? words[0] : Value(0);
}

Value to_float(Interpreter&, const Value& value, const Arguments& given) {
  const Bound words(given, "float", {"default"});
  double real = 0.0;
  if (to_real(defined(value), real)) return Value(real);
  return words.get(0) != nullptr ? words[0] : Value(0.0);
}

Value round_to(Interpreter&, const Value& value, const Arguments& given) {
  const Bound words(given, "round", {"precision", "method"});
  if (!defined(value).is_number()) throw TemplateError("round needs a number");
  const auto places = static_cast<int>(std::clamp<std::int64_t>(words.count(0, 0), -20, 20));
  const std::string method = words.text(1, "common").bytes();
  const double scale = std::pow(10.0, places), real = value.as_double();
  if (method == "ceil") return Value(std::ceil(real * scale) / scale);
  if (method == "floor") return Value(std::floor(real * scale) / scale);
  if (method != "common") throw TemplateError("method must be common, ceil or floor");
  if (!value.is_float() && places >= 0) return Value(value.as_int());
  if (places < 0) {
    const double rounded = std::nearbyint(real * scale) / scale;
    return value.is_float() ? Value(rounded) : Value(whole_number(rounded));
  }
  // The decimal digits of the number itself, ties to even: as printf writes them.
  char digits[400];
  std::snprintf(digits, sizeof digits, "%.*f", places, real);
  return Value(std::atof(digits));
}

Value to_json_filter(Interpreter&, const Value& value, const Arguments& given) {
  const Bound words(given, "tojson", {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = words.flag(0);
  if (const Value* indent = words.unless_none(1)) {
    style.indent = indent->is_string() ? indent->text() : padded(Text(), words.count(1), '>');
    style.item_separator = ",";
  }
  if (const Value* separators = words.unless_none(2)) {
    const std::vector<Value> pair = items_of(*separators);
    if (pair.size() != 2) throw TemplateError("separators are two strings");
    style.item_separator = text_of(pair[0], "a separator");
    style.key_separator = text_of(pair[1], "a separator");
  }
  style.sort_keys = words.flag(3);
  return Value(to_json(value, style));
}

Value fall_back(Interpreter&, const Value& value, const Arguments& given) {
  const Bound words(given, "default", {"default_value", "boolean"});
  const bool absent = value.is_undefined() || (words.flag(1) && !is_true(value));
  if (!absent) return value;
  return words.get(0) != nullptr ? words[0] : Value(std::string());
}

// Unlike a dot, it does not look into a mapping.
Value attr(Interpreter& interpreter, const Value& value, const Arguments& given) {
  const Bound words(given, "attr", {"name"}, 1);
  const Text& name = words.text(0);
  if (!value.is_dict()) return interpreter.attribute(value, name.view());
  const Value method = find_method(value, name.view());
  if (!method.is_none()) return method;
  return missing_attribute(value, name.view());
}

}  // namespace

const Table<Filter>& text_filters() {
  static const Table<Filter> all = {{"abs", absolute},
                                    {"attr", attr},
                                    {"capitalize", capitalize},
                                    {"center", center},
                                    {"d", fall_back},
                                    {"default", fall_back},
                                    {"e", escape},
                                    {"escape", escape},
                                    {"float", to_float},
                                    {"forceescape", force_escape},
                                    {"format", format},
                                    {"indent", indent},
                                    {"int", to_int},
                                    {"lower", lower},
                                    {"replace", replace},
                                    {"round", round_to},
                                    {"safe", safe},
                                    {"string", string},
                                    {"title", title},
                                    {"tojson", to_json_filter},
                                    {"trim", trim},
                                    {"truncate", truncate},
                                    {"upper", upper},
                                    {"urlencode", url_encode},
                                    {"wordcount", word_count}};
  return all;
}

}  // namespace coppice::chat
