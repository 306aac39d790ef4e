// Filters that make text or numbers of one value.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>

#include "base/error.h"
#include "chat/interpreter.h"
#include "chat/json.h"
#include "chat/python_text.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

bool flag(const Arguments& given, std::size_t index, std::string_view name, bool fallback) {
  const Value* value = given.get(index, name);
  return value == nullptr ? fallback : is_true(*value);
}
std::int64_t number(const Arguments& given, std::size_t index, std::string_view name,
                    std::int64_t fallback) {
  const Value* value = given.get(index, name);
  return value == nullptr ? fallback : int_of(*value, name);
}

Value method(const Value& value, std::string_view name, const Arguments& given = {}) {
  return string_method(str(value), name, given);
}

Value upper(Interpreter&, const Value& value, const Arguments& given) {
  given.check("upper", 0, 0);
  return method(value, "upper");
}
Value lower(Interpreter&, const Value& value, const Arguments& given) {
  given.check("lower", 0, 0);
  return method(value, "lower");
}
Value capitalize(Interpreter&, const Value& value, const Arguments& given) {
  given.check("capitalize", 0, 0);
  return method(value, "capitalize");
}

// Unlike str.title, only blanks, hyphens and opening brackets begin a word.
Value title(Interpreter&, const Value& value, const Arguments& given) {
  given.check("title", 0, 0);
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
  given.check("trim", 0, 1, {"chars"});
  const Value* chars = given.get(0, "chars");
  Arguments set;
  if (chars != nullptr) set.positional.push_back(*chars);
  return method(value, "strip", set);
}

Value replace(Interpreter&, const Value& value, const Arguments& given) {
  given.check("replace", 2, 3, {"old", "new", "count"});
  const Value *from = given.get(0, "old"), *to = given.get(1, "new");
  const Value* count = given.get(2, "count");
  Arguments words;
  words.positional = {Value(str(*from)), Value(str(*to))};
  if (count != nullptr && !count->is_none()) words.positional.push_back(*count);
  return method(value, "replace", words);
}

Value string(Interpreter&, const Value& value, const Arguments& given) {
  given.check("string", 0, 0);
  return value.is_string() ? value : Value(str(value));
}
Value safe(Interpreter&, const Value& value, const Arguments& given) {
  given.check("safe", 0, 0);
  return Value(str(value), true);
}
Value escape(Interpreter&, const Value& value, const Arguments& given) {
  given.check("escape", 0, 0);
  return value.is_safe() ? value : Value(html_escaped(str(value)), true);
}
Value force_escape(Interpreter&, const Value& value, const Arguments& given) {
  given.check("forceescape", 0, 0);
  return Value(html_escaped(str(value)), true);
}

Text without_line_end(const Text& line) {
  std::string_view rest = line.view();
  if (rest.ends_with("\r\n")) {
    rest.remove_suffix(2);
  } else if (!rest.empty() && ends_line(last_code_point(rest).value)) {
    rest.remove_suffix(last_code_point(rest).bytes);
  }
  return line.substr(0, rest.size());
}

Value indent(Interpreter&, const Value& value, const Arguments& given) {
  given.check("indent", 0, 3, {"width", "first", "blank"});
  const Value* width = given.get(0, "width");
  Text step;
  if (width != nullptr && width->is_string()) {
    step = width->text();
  } else {
    step = padded(Text(), number(given, 0, "width", 4), '>');
  }
  Text text = str(value);
  text.append("\n");
  Arguments ends_kept;
  ends_kept.positional.emplace_back(true);
  const Value split = string_method(text, "splitlines", ends_kept);
  const auto& lines = split.as_list().items;
  Text out;
  if (flag(given, 1, "first", false)) out.append(step);
  const bool blank = flag(given, 2, "blank", false);
  bool foreign_end = false;
  for (std::size_t i = 0; i < lines.size(); ++i) {
    const Text& whole = lines[i].text();
    const Text line = without_line_end(whole);
    if (i > 0) {
      out.append("\n", foreign_end);
      if (blank || !line.empty()) out.append(step);
    }
    out.append(line);
    foreign_end = whole.foreign_at(whole.size() - 1);
  }
  return Value(std::move(out));
}

Value truncate(Interpreter&, const Value& value, const Arguments& given) {
  given.check("truncate", 0, 4, {"length", "killwords", "end", "leeway"});
  const Text text = str(value);
  const std::int64_t most = number(given, 0, "length", 255);
  const Value* end_value = given.get(2, "end");
  const Text end = end_value != nullptr ? text_of(*end_value, "end") : Text("...");
  const auto end_size = static_cast<std::int64_t>(length(end.view()));
  if (most < end_size) throw TemplateError(cat("expected length >= ", end_size, ", got ", most));
  const auto starts = boundaries(text.view());
  const auto size = static_cast<std::int64_t>(starts.size()) - 1;
  if (size - most <= number(given, 3, "leeway", 5)) return Value(text);
  Text cut = text.substr(0, starts[static_cast<std::size_t>(std::min(most - end_size, size))]);
  if (!flag(given, 1, "killwords", false)) {
    const std::size_t space = cut.view().rfind(' ');
    if (space != std::string_view::npos) cut = cut.substr(0, space);
  }
  cut.append(end);
  return Value(std::move(cut));
}

Value center(Interpreter&, const Value& value, const Arguments& given) {
  given.check("center", 0, 1, {"width"});
  Arguments words;
  words.positional = {Value(number(given, 0, "width", 80))};
  return method(value, "center", words);
}

Value word_count(Interpreter&, const Value& value, const Arguments& given) {
  given.check("wordcount", 0, 0);
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
  given.check("urlencode", 0, 0);
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
  given.check("abs", 0, 0);
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
  given.check("int", 0, 2, {"default", "base"});
  const Value* fallback = given.get(0, "default");
  if (defined(value).is_int() || value.is_bool()) return Value(value.as_int());
  if (value.is_string()) {
    const Text text = stripped(value.text(), nullptr, true, true);
    std::string_view digits = text.view();
    std::int64_t whole = 0;
    int base = static_cast<int>(std::clamp<std::int64_t>(number(given, 1, "base", 10), 2, 36));
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
  return fallback != nullptr ? *fallback : Value(0);
}

Value to_float(Interpreter&, const Value& value, const Arguments& given) {
  given.check("float", 0, 1, {"default"});
  double real = 0.0;
  if (to_real(defined(value), real)) return Value(real);
  const Value* fallback = given.get(0, "default");
  return fallback != nullptr ? *fallback : Value(0.0);
}

Value round_to(Interpreter&, const Value& value, const Arguments& given) {
  given.check("round", 0, 2, {"precision", "method"});
  if (!defined(value).is_number()) throw TemplateError("round needs a number");
  const auto places =
      static_cast<int>(std::clamp<std::int64_t>(number(given, 0, "precision", 0), -20, 20));
  const Value* how = given.get(1, "method");
  const std::string method = how != nullptr ? text_of(*how, "method").bytes() : "common";
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
  given.check("tojson", 0, 4, {"ensure_ascii", "indent", "separators", "sort_keys"});
  JsonStyle style;
  style.ensure_ascii = flag(given, 0, "ensure_ascii", false);
  if (const Value* indent = given.get(1, "indent"); indent != nullptr && !indent->is_none()) {
    style.indent = indent->is_string()
                       ? indent->text()
                       : Text(std::string(static_cast<std::size_t>(std::clamp<std::int64_t>(
                                              int_of(*indent, "indent"), 0, 1000)),
                                          ' '));
    style.item_separator = Text(",");
  }
  if (const Value* separators = given.get(2, "separators");
      separators != nullptr && !separators->is_none()) {
    const std::vector<Value> pair = items_of(*separators);
    if (pair.size() != 2) throw TemplateError("separators are two strings");
    style.item_separator = text_of(pair[0], "a separator");
    style.key_separator = text_of(pair[1], "a separator");
  }
  style.sort_keys = flag(given, 3, "sort_keys", false);
  return Value(to_json(value, style));
}

Value fall_back(Interpreter&, const Value& value, const Arguments& given) {
  given.check("default", 0, 2, {"default_value", "boolean"});
  const Value* fallback = given.get(0, "default_value");
  const bool absent = value.is_undefined() || (flag(given, 1, "boolean", false) && !is_true(value));
  if (!absent) return value;
  return fallback != nullptr ? *fallback : Value(std::string());
}

// Unlike a dot, it does not look into a mapping.
Value attr(Interpreter& interpreter, const Value& value, const Arguments& given) {
  given.check("attr", 1, 1, {"name"});
  const Text& name = text_of(*given.get(0, "name"), "name");
  if (!value.is_dict()) return interpreter.attribute(value, name.view());
  const Value method = find_method(value, name.view());
  if (!method.is_none()) return method;
  return Value::undefined(cat("'dict object' has no attribute '", name.view(), "'"));
}

const std::map<std::string_view, Filter>& text_filters() {
  static const std::map<std::string_view, Filter> all = {{"abs", absolute},
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

}  // namespace

Filter find_text_filter(std::string_view name) {
  const auto found = text_filters().find(name);
  return found == text_filters().end() ? nullptr : found->second;
}

std::vector<std::string_view> filter_names() {
  std::vector<std::string_view> names = sequence_filter_names();
  for (const auto& [name, filter] : text_filters()) names.push_back(name);
  return names;
}

}  // namespace coppice::chat
