#include "chat/json.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "base/remedy.h"
#include "chat/python_text.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

using Json = nlohmann::json;

constexpr std::size_t deepest = 64;

// Builds values from the parser's events.
class Reader {
 public:
  Reader(bool foreign, std::string where) : foreign_(foreign), where_(std::move(where)) {}
  Value take() { return std::move(root_); }

  bool null() { return add(Value()); }
  bool boolean(bool value) { return add(Value(value)); }
  bool number_integer(Json::number_integer_t value) { return add(Value(std::int64_t{value})); }
  bool number_unsigned(Json::number_unsigned_t value) {
    if (value > static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max())) {
      return add(Value(static_cast<double>(value)));
    }
    return add(Value(static_cast<std::int64_t>(value)));
  }
  bool number_float(Json::number_float_t value, const std::string&) { return add(Value(value)); }
  bool string(std::string& value) { return add(Value(Text(std::move(value), foreign_))); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return open(true); }
  bool start_array(std::size_t) { return open(false); }
  bool key(std::string& name) {
    Level& level = open_.back();
    Value key(Text(std::move(name), foreign_));
    if (!level.keys.insert(key.text().bytes()).second) {
      throw_usage(cat(where_, ": key ", quote(key.text().view()), " appears twice; remove one"));
    }
    level.pairs.emplace_back(std::move(key), Value());
    return true;
  }
  bool end_object() { return close(); }
  bool end_array() { return close(); }
  bool parse_error(std::size_t byte, const std::string&, const Json::exception&) {
    throw_usage(cat(where_, ": not valid JSON at byte ", byte, "; correct it"));
  }

 private:
  struct Level {
    bool object;
    std::vector<Value> items;
    std::vector<std::pair<Value, Value>> pairs;
    std::set<std::string> keys;
  };

  bool add(Value value) {
    if (open_.empty()) {
      root_ = std::move(value);
    } else if (open_.back().object) {
      open_.back().pairs.back().second = std::move(value);
    } else {
      open_.back().items.push_back(std::move(value));
    }
    return true;
  }
  bool open(bool object) {
    if (open_.size() >= deepest) {
      throw_usage(cat(where_, ": nested more than ", deepest, " levels deep; make it flatter"));
    }
    open_.push_back({object, {}, {}, {}});
    return true;
  }
  bool close() {
    Level level = std::move(open_.back());
    open_.pop_back();
    return add(level.object ? Value::dict(std::move(level.pairs))
                            : Value::list(std::move(level.items)));
  }

  bool foreign_;
  std::string where_;
  Value root_;
  std::vector<Level> open_;
};

class Writer {
 public:
  explicit Writer(const JsonStyle& style) : style_(style) {}
  Text take() { return std::move(out_); }

  void write(const Value& value, int level) {
    Budget::spend_steps(1);
    if (value.is_none()) {
      out_.append("null");
    } else if (value.is_bool()) {
      out_.append(value.as_bool() ? "true" : "false");
    } else if (value.is_int()) {
      out_.append(std::to_string(value.as_int()));
    } else if (value.is_float()) {
      out_.append(number(value.as_double()));
    } else if (value.is_string()) {
      string(value.text());
    } else if (value.is_list(List::Kind::list) || value.is_list(List::Kind::tuple)) {
      const auto& items = value.as_list().items;
      list('[', ']', items.size(), level, [&](std::size_t i) { write(items[i], level + 1); });
    } else if (value.is_dict()) {
      dict(value.as_dict(), level);
    } else {
      std::string type = value.type_name();
      if (const std::size_t end = type.find(' '); end != std::string::npos) type.resize(end);
      throw TemplateError(cat("Object of type ", type, " is not JSON serializable"));
    }
  }

 private:
  static std::string number(double value) {
    if (std::isnan(value)) return "NaN";
    if (std::isinf(value)) return value < 0 ? "-Infinity" : "Infinity";
    return float_text(value);
  }

  template <typename Each>
  void list(char begin, char end, std::size_t count, int level, const Each& each) {
    out_.append(std::string_view(&begin, 1));
    for (std::size_t i = 0; i < count; ++i) {
      if (i > 0) out_.append(style_.item_separator);
      line(level + 1);
      each(i);
    }
    if (count > 0) line(level);
    out_.append(std::string_view(&end, 1));
  }

  void dict(const Dict& dict, int level) {
    std::vector<const std::pair<Value, Value>*> items;
    for (const auto& item : dict.items) items.push_back(&item);
    if (style_.sort_keys) {
      std::stable_sort(items.begin(), items.end(), [](const auto* a, const auto* b) {
        return compare(a->first, b->first, "<") < 0;
      });
    }
    list('{', '}', items.size(), level, [&](std::size_t i) {
      const Value& key = items[i]->first;
      if (key.is_string()) {
        string(key.text());
      } else if (key.is_number() || key.is_none()) {
        Writer text(style_);
        text.write(key, 0);
        string(text.take());
      } else {
        throw TemplateError(
            cat("keys must be str, int, float, bool or None, not ", key.type_name()));
      }
      out_.append(style_.key_separator);
      write(items[i]->second, level + 1);
    });
  }

  void line(int level) {
    if (!style_.indent) return;
    out_.append("\n");
    for (int i = 0; i < level; ++i) out_.append(*style_.indent);
  }

  void string(const Text& text) {
    out_.append("\"");
    const std::string_view bytes = text.view();
    for (std::size_t at = 0; at < bytes.size();) {
      const auto [c, count] = first_code_point(bytes.substr(at));
      const std::string escape = escaped(c);
      if (escape.empty()) {
        out_.append(text, at, count);
      } else {
        out_.append(escape, text.foreign_at(at));
      }
      at += count;
    }
    out_.append("\"");
  }

  std::string escaped(char32_t c) const {
    switch (c) {
      case '"':
        return "\\\"";
      case '\\':
        return "\\\\";
      case '\n':
        return "\\n";
      case '\r':
        return "\\r";
      case '\t':
        return "\\t";
      case '\f':
        return "\\f";
      case '\b':
        return "\\b";
      default:
        break;
    }
    if (c >= 0x20 && (c < 0x7f || !style_.ensure_ascii)) return "";
    if (c >= 0x10000) {
      return unit(static_cast<unsigned>(0xd800 + ((c - 0x10000) >> 10))) +
             unit(static_cast<unsigned>(0xdc00 + ((c - 0x10000) & 0x3ff)));
    }
    return unit(static_cast<unsigned>(c));
  }
  static std::string unit(unsigned value) {
    char text[12];
    std::snprintf(text, sizeof text, "\\u%04x", value);
    return text;
  }

  const JsonStyle& style_;
  Text out_;
};

}  // namespace

Value parse_json(std::string_view json, const std::string& where, bool foreign) {
  // The parser takes a NUL byte for the end of its input.
  if (const auto nul = json.find('\0'); nul != json.npos) {
    throw_usage(cat(where, ": not valid JSON at byte ", nul + 1, ", a NUL; correct it"));
  }
  Reader reader(foreign, where);
  try {
    Json::sax_parse(json.begin(), json.end(), &reader);
  } catch (const TemplateError& error) {
    throw_usage(with_remedy(cat(where, ": ", error.what()), "make it smaller"));
  }
  return reader.take();
}

Text to_json(const Value& value, const JsonStyle& style) {
  Writer writer(style);
  writer.write(value, 0);
  return writer.take();
}

}  // namespace coppice::chat
