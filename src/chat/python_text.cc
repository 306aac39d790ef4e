#include "chat/python_text.h"

#include <charconv>
#include <cmath>

#include "base/error.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

std::string hex(char32_t c, int digits) {
  constexpr char symbols[] = "0123456789abcdef";
  std::string text;
  for (int i = digits - 1; i >= 0; --i) text += symbols[(c >> (4 * i)) & 15];
  return text;
}

void append_quoted(const Text& text, Text& out) {
  const bool double_quotes = text.view().find('\'') != std::string_view::npos &&
                             text.view().find('"') == std::string_view::npos;
  const char quote = double_quotes ? '"' : '\'';
  out.append(std::string(1, quote));
  for (std::size_t at = 0; at < text.size();) {
    const auto [c, bytes] = first_code_point(text.view().substr(at));
    const bool foreign = text.foreign_at(at);
    if (c == static_cast<unsigned char>(quote) || c == '\\') {
      out.append(std::string("\\") + static_cast<char>(c), foreign);
    } else if (c == '\n' || c == '\r' || c == '\t') {
      out.append(c == '\n' ? "\\n" : c == '\r' ? "\\r" : "\\t", foreign);
    } else if (is_printable(c)) {
      out.append(text, at, bytes);
    } else {
      out.append(c < 0x100     ? "\\x" + hex(c, 2)
                 : c < 0x10000 ? "\\u" + hex(c, 4)
                               : "\\U" + hex(c, 8),
                 foreign);
    }
    at += bytes;
  }
  out.append(std::string(1, quote));
}

void write(const Value& value, bool as_repr, Text& out);

void write_list(const List& list, Text& out) {
  if (list.kind == List::Kind::range) return out.append(list.shown);
  if (list.kind == List::Kind::generator) return out.append("<generator object>");
  const bool tuple = list.is_tuple(), view = !list.has_elements();
  if (view) {
    out.append(list.kind == List::Kind::keys     ? "dict_keys("
               : list.kind == List::Kind::values ? "dict_values("
                                                 : "dict_items(");
  }
  out.append(tuple ? "(" : "[");
  bool first = true;
  for (const Value& item : list.items) {
    if (!first) out.append(", ");
    first = false;
    write(item, true, out);
  }
  if (tuple && list.items.size() == 1) out.append(",");
  out.append(tuple ? ")" : "]");
  if (view) out.append(")");
}

void write(const Value& value, bool as_repr, Text& out) {
  Budget::spend_steps(1);
  if (value.is_undefined()) {
    if (as_repr) out.append("Undefined");
  } else if (value.is_none()) {
    out.append("None");
  } else if (value.is_bool()) {
    out.append(value.as_bool() ? "True" : "False");
  } else if (value.is_int()) {
    out.append(std::to_string(value.as_int()));
  } else if (value.is_float()) {
    out.append(float_text(value.as_double()));
  } else if (value.is_string()) {
    if (as_repr && value.is_safe()) out.append("Markup(");
    as_repr ? append_quoted(value.text(), out) : out.append(value.text());
    if (as_repr && value.is_safe()) out.append(")");
  } else if (value.is_list()) {
    write_list(value.as_list(), out);
  } else if (value.is_dict()) {
    out.append("{");
    bool first = true;
    for (const auto& [key, item] : value.as_dict().items) {
      if (!first) out.append(", ");
      first = false;
      write(key, true, out);
      out.append(": ");
      write(item, true, out);
    }
    out.append("}");
  } else if (value.is_namespace()) {
    out.append("<Namespace>");
  } else {
    out.append(cat("<", value.as_callable().name, ">"));
  }
}

// A number in the form that a conversion asks for: "d", "f", ".2f", "x", "05d".
struct NumberFormat {
  std::int64_t width = 0;
  int precision = -1;
  char sign = '\0';  ///< of positive numbers: '+', ' ' or nothing
  bool zeros = false, commas = false;
  char fill_align = '\0';
  Text fill = " ";
  char type = '\0';
  bool foreign = false;  ///< who wrote the format, and so what it makes of a number
};

constexpr int widest = 10'000;

bool is_one_of(char c, std::string_view set) { return set.find(c) != std::string_view::npos; }

std::string with_commas(std::string digits) {
  const std::size_t first = digits[0] == '-' || digits[0] == '+' ? 1 : 0;
  std::size_t end = digits.find_first_of(".eE");
  if (end == std::string::npos) end = digits.size();
  for (std::size_t i = end; i > first + 3;) digits.insert(i -= 3, ",");
  return digits;
}

Text number_text(const Value& value, const NumberFormat& format) {
  std::string text;
  char type = format.type;
  if (type == '\0') type = value.is_float() ? (format.precision >= 0 ? 'g' : 'r') : 'd';
  if (type == 'r') {
    text = float_text(value.as_double());
  } else if (type == 'd' || type == 'i' || type == 'x' || type == 'X' || type == 'o') {
    const std::int64_t number = value.is_float() ? whole_number(value.as_double()) : value.as_int();
    char digits[72];
    const auto end = std::to_chars(digits, digits + sizeof digits, number,
                                   type == 'o'                  ? 8
                                   : type == 'x' || type == 'X' ? 16
                                                                : 10);
    text.assign(digits, end.ptr);
    if (type == 'X') {
      for (char& c : text) c = static_cast<char>(c >= 'a' && c <= 'f' ? c - 'a' + 'A' : c);
    }
  } else {
    char digits[512];
    const double number = value.as_double() * (type == '%' ? 100.0 : 1.0);
    const std::string pattern = std::string("%.*") + (type == '%' ? 'f' : type);
    std::snprintf(digits, sizeof digits, pattern.c_str(),
                  format.precision < 0 ? 6 : std::min(format.precision, 100), number);
    text = digits;
    if (type == '%') text += '%';
  }
  if (format.sign != '\0' && text[0] != '-') text.insert(0, 1, format.sign);
  if (format.commas) text = with_commas(text);
  if (format.zeros && static_cast<std::int64_t>(text.size()) < format.width) {
    text.insert(is_one_of(text[0], "-+ ") ? 1 : 0,
                static_cast<std::size_t>(format.width) - text.size(), '0');
  }
  return Text(text, format.foreign);
}

// What %.3s leaves of a text.
Text shortened(Text text, int precision) {
  if (precision < 0) return text;
  return text.substr(0, offset(text.view(), static_cast<std::size_t>(precision)));
}

int number_at(std::string_view text, std::size_t& at) {
  int number = 0;
  for (; at < text.size() && is_one_of(text[at], "0123456789"); ++at) {
    number = std::min(widest, number * 10 + (text[at] - '0'));
  }
  return number;
}

// [[fill]align][sign][0][width][,][.precision][type]
Text with_spec(const Value& value, const Text& written) {
  std::string_view spec = written.view();
  if (spec.empty()) return str(value);
  NumberFormat format;
  format.foreign = written.has_foreign();
  format.fill = Text(" ", format.foreign);
  const std::size_t first = first_code_point(spec).bytes;
  if (spec.size() > first && is_one_of(spec[first], "<>^=")) {
    format.fill = written.substr(0, first);
    format.fill_align = spec[first];
    spec.remove_prefix(first + 1);
  } else if (is_one_of(spec[0], "<>^=")) {
    format.fill_align = spec[0];
    spec.remove_prefix(1);
  }
  std::size_t at = 0;
  if (at < spec.size() && is_one_of(spec[at], "+- ")) {
    format.sign = spec[at] == '-' ? '\0' : spec[at];
    ++at;
  }
  if (at < spec.size() && spec[at] == '0') format.zeros = true;
  format.width = number_at(spec, at);
  if (at < spec.size() && spec[at] == ',') {
    format.commas = true;
    ++at;
  }
  if (at < spec.size() && spec[at] == '.') format.precision = number_at(spec, ++at);
  if (at < spec.size()) format.type = spec[at++];
  const bool number = value.is_number();  // a bool with a format is one
  if (at != spec.size() ||
      (format.type != '\0' && !is_one_of(format.type, number ? "dixXofFeEgG%" : "s"))) {
    throw TemplateError(
        cat("format specification ", quote(spec), " does not fit a ", value.type_name()));
  }
  Text text;
  if (number) {
    text = number_text(value, format);
  } else {
    text = shortened(str(value), format.precision);
  }
  const char align = format.fill_align != '\0' && format.fill_align != '=' ? format.fill_align
                     : number                                              ? '>'
                                                                           : '<';
  return padded(text, format.width, align, format.fill);
}

Value part_of(const Value& value, const std::string& key, bool attribute) {
  if (value.is_dict() && !attribute) {
    if (const Value* found = value.as_dict().named(key)) return *found;
  }
  if (value.is_list() && value.as_list().has_elements() && !key.empty() &&
      key.find_first_not_of("0123456789") == key.npos && key.size() < 9) {
    const auto index = static_cast<std::size_t>(std::stoi(key));
    if (index < value.as_list().items.size()) return value.as_list().items[index];
  }
  throw TemplateError(cat(value.type_name(), " has no ", quote(key)));
}

Value field_value(std::string_view field, const Arguments& arguments, std::size_t& next) {
  std::size_t end = field.find_first_of(".[");
  if (end == std::string_view::npos) end = field.size();
  const std::string name(field.substr(0, end));
  Value value;
  if (name.find_first_not_of("0123456789") == std::string::npos) {
    const std::size_t index = name.empty() ? next++ : name.size() < 9 ? std::stoul(name) : widest;
    if (index >= arguments.positional.size()) {
      throw TemplateError("Replacement index out of range for positional args tuple");
    }
    value = arguments.positional[index];
  } else {
    const Value* found = arguments.find(name);
    if (found == nullptr) throw TemplateError(cat("format() was given no ", quote(name)));
    value = *found;
  }
  for (std::string_view rest = field.substr(end); !rest.empty();) {
    const bool attribute = rest[0] == '.';
    std::size_t stop = attribute ? rest.find_first_of(".[", 1) : rest.find(']');
    if (!attribute && stop == std::string_view::npos) {
      throw TemplateError("expected '}' before end of string");
    }
    stop = std::min(stop, rest.size());
    value = part_of(value, std::string(rest.substr(1, stop - 1)), attribute);
    rest.remove_prefix(std::min(rest.size(), attribute ? stop : stop + 1));
  }
  return value;
}

}  // namespace

std::string float_text(double value) {
  if (std::isnan(value)) return "nan";
  if (std::isinf(value)) return value < 0 ? "-inf" : "inf";
  char digits[400];
  const double size = std::fabs(value);
  const bool plain = size == 0.0 || (size >= 1e-4 && size < 1e16);
  const auto end = std::to_chars(digits, digits + sizeof digits, value,
                                 plain ? std::chars_format::fixed : std::chars_format::scientific);
  std::string text(digits, end.ptr);
  if (plain && text.find('.') == std::string::npos) text += ".0";
  return text;
}

void append_str(const Value& value, Text& out) { write(value, false, out); }

Text str(const Value& value) {
  Text text;
  append_str(value, text);
  return text;
}

Text repr(const Value& value) {
  Text text;
  write(value, true, text);
  return text;
}

Text padded(const Text& text, std::int64_t width, char align, const Text& fill) {
  const auto have = static_cast<std::int64_t>(length(text.view()));
  if (width <= have) return text;
  const auto missing = static_cast<std::size_t>(width - have);
  Budget::expect_bytes(fill.size(), missing);
  const std::size_t left = align == '>' ? missing : align == '^' ? missing / 2 : 0;
  Text out;
  for (std::size_t i = 0; i < left; ++i) out.append(fill);
  out.append(text);
  for (std::size_t i = left; i < missing; ++i) out.append(fill);
  return out;
}

Text printf_format(const Text& format, const Value& value) {
  const std::vector<Value> one{value};
  const bool several = value.is_list(List::Kind::tuple);
  const std::vector<Value>& values = several ? value.as_list().items : one;
  std::size_t next = 0;
  const std::string_view bytes = format.view();
  Text out;
  for (std::size_t at = 0; at < bytes.size();) {
    if (bytes[at] != '%') {
      const std::size_t end = std::min(bytes.find('%', at), bytes.size());
      out.append(format, at, end - at);
      at = end;
      continue;
    }
    const std::size_t begin = at;
    if (++at < bytes.size() && bytes[at] == '%') {
      out.append(format, at++, 1);
      continue;
    }
    Value argument;
    if (at < bytes.size() && bytes[at] == '(') {
      const std::size_t end = bytes.find(')', at);
      const Value* found = end == std::string_view::npos || !value.is_dict()
                               ? nullptr
                               : value.as_dict().named(bytes.substr(at + 1, end - at - 1));
      if (found == nullptr) throw TemplateError("% found no value for its key");
      argument = *found;
      at = end + 1;
      next = values.size();
    }
    const bool keyed = at > 0 && bytes[at - 1] == ')';
    NumberFormat number;
    bool left = false;
    for (; at < bytes.size() && is_one_of(bytes[at], "-+ 0"); ++at) {
      left = left || bytes[at] == '-';
      if (bytes[at] == '+' || (bytes[at] == ' ' && number.sign == '\0')) number.sign = bytes[at];
      number.zeros = number.zeros || bytes[at] == '0';
    }
    number.width = number_at(bytes, at);
    if (at < bytes.size() && bytes[at] == '.') number.precision = number_at(bytes, ++at);
    if (at >= bytes.size()) throw TemplateError("incomplete format");
    number.type = bytes[at++];
    number.foreign = format.substr(begin, at - begin).has_foreign();
    if (!keyed) {
      if (next >= values.size()) throw TemplateError("not enough arguments for format string");
      argument = values[next++];
    }
    Text text;
    if (is_one_of(number.type, "sr")) {
      text = number.type == 's' ? str(argument) : repr(argument);
      text = shortened(std::move(text), number.precision);
    } else if (number.type == 'c' && argument.is_int()) {
      const std::int64_t code = argument.as_int();
      if (code < 0 || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) {
        throw TemplateError("%c arg not in range(0x110000)");
      }
      // A number has no mark: it may be a message's.
      text = Text(to_utf8(static_cast<char32_t>(code)), true);
    } else if (number.type == 'c' && argument.is_string() && length(argument.text().view()) == 1) {
      text = argument.text();
    } else if (is_one_of(number.type, "dixXofFeEgGu")) {
      if (!defined(argument).is_number()) {
        throw TemplateError(
            cat("%", number.type, " format: a number is required, not a ", argument.type_name()));
      }
      if (number.type == 'u') number.type = 'd';
      if (left) number.zeros = false;
      text = number_text(argument, number);
    } else {
      throw TemplateError(cat("unsupported format character '", number.type, "'"));
    }
    out.append(padded(text, number.width, left ? '<' : '>', Text(" ", number.foreign)));
  }
  // As Python has it, what could be a mapping may be given in vain.
  const bool may_be_mapping = value.is_dict() || value.is_list() || value.is_undefined();
  if ((several || !may_be_mapping) && next < values.size()) {
    throw TemplateError("not all arguments converted during string formatting");
  }
  return out;
}

Text brace_format(const Text& format, const Arguments& arguments) {
  const std::string_view bytes = format.view();
  std::size_t next = 0;
  Text out;
  for (std::size_t at = 0; at < bytes.size();) {
    const char c = bytes[at];
    if ((c == '{' || c == '}') && at + 1 < bytes.size() && bytes[at + 1] == c) {
      out.append(format, at, 1);
      at += 2;
    } else if (c == '{') {
      const std::size_t end = bytes.find('}', at);
      if (end == std::string_view::npos) throw TemplateError("Single '{' in format string");
      std::string_view field = bytes.substr(at + 1, end - at - 1);
      Text spec;
      if (const std::size_t colon = field.find(':'); colon != std::string_view::npos) {
        spec = format.substr(at + 1 + colon + 1, field.size() - colon - 1);
        field = field.substr(0, colon);
      }
      char conversion = '\0';
      if (field.size() >= 2 && field[field.size() - 2] == '!') {
        conversion = field.back();
        field.remove_suffix(2);
      }
      Value value = field_value(field, arguments, next);
      if (conversion == 'r') value = Value(repr(value));
      if (conversion == 's') value = Value(str(value));
      out.append(with_spec(value, spec));
      at = end + 1;
    } else if (c == '}') {
      throw TemplateError("Single '}' encountered in format string");
    } else {
      const std::size_t end = std::min(bytes.find_first_of("{}", at), bytes.size());
      out.append(format, at, end - at);
      at = end;
    }
  }
  return out;
}

Text html_escaped(const Text& text) {
  Text out;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text.view()[at];
    const char* entity = c == '&'    ? "&amp;"
                         : c == '<'  ? "&lt;"
                         : c == '>'  ? "&gt;"
                         : c == '\'' ? "&#39;"
                         : c == '"'  ? "&#34;"
                                     : nullptr;
    if (entity != nullptr) {
      out.append(entity, text.foreign_at(at));
    } else {
      out.append(text, at, 1);
    }
  }
  return out;
}

}  // namespace coppice::chat
