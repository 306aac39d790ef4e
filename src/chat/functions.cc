// Global functions, and methods of lists and mappings.
#include <algorithm>
#include <array>
#include <ctime>

#include "base/error.h"
#include "chat/arguments.h"
#include "chat/interpreter.h"
#include "chat/python_text.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

Value function(std::string name, std::function<Value(Interpreter&, const Arguments&)> call,
               int depth = 1) {
  return Value(Callable{std::move(name), std::move(call), {}, depth});
}

Value range(Interpreter&, const Arguments& given) {
  const Bound bounds(given, "range", {"", "", ""}, 1);
  const std::int64_t from = bounds.get(1) != nullptr ? bounds.integer(0) : 0;
  const std::int64_t to = bounds.integer(bounds.get(1) != nullptr ? 1 : 0);
  const std::int64_t by = bounds.get(2) != nullptr ? bounds.integer(2) : 1;
  if (by == 0) throw TemplateError("range() arg 3 must not be zero");
  std::vector<Value> items;
  for (std::int64_t i = from; by > 0 ? i < to : i > to;) {
    items.emplace_back(i);
    if (items.size() > 100'000)
      throw TemplateError(
          "Range too big. The sandbox blocks ranges larger than MAX_RANGE (100000).");
    if (__builtin_add_overflow(i, by, &i)) break;
  }
  return Value::range(std::move(items),
                      cat("range(", from, ", ", to, by != 1 ? cat(", ", by) : "", ")"));
}

Value make_dict(Interpreter&, const Arguments& given) {
  std::vector<std::pair<Value, Value>> items;
  const auto set = [&](Value key, const Value& value) {
    for (auto& [old_key, old] : items) {
      if (equal(old_key, key)) {
        old = value;
        return;
      }
    }
    items.emplace_back(std::move(key), value);
  };
  if (given.positional.size() > 1) throw TemplateError("dict() takes one mapping or list");
  for (const Value& value : given.positional) {
    if (defined(value).is_dict()) {
      items = value.as_dict().items;
      continue;
    }
    for (const Value& pair : items_of(value)) {
      const std::vector<Value> two = items_of(pair);
      if (two.size() != 2) throw TemplateError("dict() takes mappings and pairs");
      set(hashable(two[0]), two[1]);
    }
  }
  for (const auto& [name, value] : given.named) set(Value(name), value);
  return Value::dict(std::move(items));
}

Value make_namespace(Interpreter& interpreter, const Arguments& given) {
  Namespace* names = interpreter.new_namespace();
  // As dict() takes them; a namespace as well.
  Arguments words = given;
  for (Value& value : words.positional) {
    if (!value.is_namespace()) continue;
    std::vector<std::pair<Value, Value>> items;
    for (const auto& [name, item] : value.as_namespace().items) items.emplace_back(name, item);
    value = Value::dict(std::move(items));
  }
  const Value dict = make_dict(interpreter, words);
  for (const auto& [name, value] : dict.as_dict().items) {
    names->items.emplace_back(text_of(name, "a name").bytes(), value);
  }
  return Value(names);
}

Value joiner(Interpreter&, const Arguments& given) {
  const Bound words(given, "joiner", {"sep"});
  const Value text = words.get(0) != nullptr ? words[0] : Value(Text(", "));
  return function(
      "joiner",
      [text, used = std::make_shared<bool>(false)](Interpreter&, const Arguments& none) {
        static_cast<void>(Bound(none, "joiner"));
        return std::exchange(*used, true) ? text : Value(std::string());
      },
      text.depth() + 1);
}

Value cycler(Interpreter&, const Arguments& given) {
  if (given.positional.empty()) throw TemplateError("at least one item has to be provided");
  if (!given.named.empty()) throw TemplateError("cycler takes no names");
  const Value items = Value::list(given.positional);
  const auto at = std::make_shared<std::size_t>(0);
  const auto current = [items, at] { return items.as_list().items[*at]; };
  Callable cycle{"cycler", {}, {}, items.depth() + 1};
  cycle.attribute = [=](std::string_view name) {
    if (name == "current") return current();
    if (name == "next") {
      Value next = function("next", [=](Interpreter&, const Arguments& none) {
        static_cast<void>(Bound(none, "next"));
        Value value = current();
        *at = (*at + 1) % items.as_list().items.size();
        return value;
      });
      return next;
    }
    if (name == "reset") {
      return function("reset", [at](Interpreter&, const Arguments& none) {
        static_cast<void>(Bound(none, "reset"));
        *at = 0;
        return Value();
      });
    }
    return Value::undefined(cat("'Cycler object' has no attribute '", name, "'"));
  };
  return Value(std::move(cycle));
}

Value raise_exception(Interpreter&, const Arguments& given) {
  throw TemplateError(str(Bound(given, "raise_exception", {"message"}, 1)[0]).bytes());
}

// Bytes of the time's part that begins with the % at the front: %d, %-d, %10Y, %Ex.
std::size_t directive_size(std::string_view format) {
  std::size_t end = std::min(format.find_first_not_of("_-0^#+123456789EO", 1), format.size());
  if (end < format.size()) end += first_code_point(format.substr(end)).bytes;
  return end;
}

Value strftime_now(Interpreter& interpreter, const Arguments& given) {
  const Bound words(given, "strftime_now", {"format"}, 1);
  const Text& format = words.text(0);
  const std::time_t now = interpreter.now();
  std::tm parts{};
  localtime_r(&now, &parts);
  Text out;
  for (std::size_t at = 0; at < format.size();) {
    const std::size_t part = std::min(format.view().find('%', at), format.size());
    out.append(format, at, part - at);
    at = part;
    if (at == format.size()) break;
    const Text directive = format.substr(at, directive_size(format.view().substr(at)));
    at += directive.size();
    // The character before tells an empty result from one that does not fit.
    char text[512];
    const std::size_t size =
        std::strftime(text, sizeof text, (" " + directive.bytes()).c_str(), &parts);
    if (size == 0) throw TemplateError("a part of a time's format is too long");
    out.append(std::string_view(text + 1, size - 1), directive.has_foreign());
  }
  return Value(std::move(out));
}

constexpr std::array dict_changes = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array list_changes = {"append", "clear",  "extend",  "insert",
                                     "pop",    "remove", "reverse", "sort"};

template <std::size_t n>
bool has(const std::array<const char*, n>& names, std::string_view name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

Value forbidden(const Value& owner, std::string_view name) {
  std::string type = owner.type_name();
  if (const std::size_t end = type.find(' '); end != std::string::npos) type.resize(end);
  return Value::undefined(
      cat("access to attribute '", name, "' of '", type, "' object is unsafe."));
}

Value get(const Value& self, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {"", ""}, 1);
  const Value* found = self.as_dict().find(hashable(words[0]));
  if (found != nullptr) return *found;
  return words.get(1) != nullptr ? words[1] : Value();
}

Value copy(const Value& self, std::string_view name, const Arguments& given) {
  static_cast<void>(Bound(given, name));
  return self;
}

Value view(const Value& self, std::string_view name, const Arguments& given) {
  static_cast<void>(Bound(given, name));
  using Kind = List::Kind;
  const Kind kind = name == "keys" ? Kind::keys : name == "values" ? Kind::values : Kind::items;
  std::vector<Value> out;
  for (const auto& [key, item] : self.as_dict().items) {
    out.push_back(kind == Kind::keys     ? key
                  : kind == Kind::values ? item
                                         : Value::tuple({key, item}));
  }
  return Value::list(std::move(out), kind);
}

Value count(const Value& self, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {""}, 1);
  const auto& items = self.as_list().items;
  return Value(std::count_if(items.begin(), items.end(),
                             [&](const Value& item) { return equal(item, words[0]); }));
}

Value index(const Value& self, std::string_view name, const Arguments& given) {
  const Bound words(given, name, {"", "", ""}, 1);
  const auto& items = self.as_list().items;
  const auto n = static_cast<std::int64_t>(items.size());
  const auto bound = [&](std::size_t which, std::int64_t fallback) {
    const std::int64_t at = words.count(which, fallback);
    return std::clamp<std::int64_t>(at < 0 ? at + n : at, 0, n);
  };
  for (std::int64_t i = bound(1, 0); i < bound(2, n); ++i) {
    if (equal(items[static_cast<std::size_t>(i)], words[0])) return Value(i);
  }
  throw TemplateError("the value is not in the list");
}

Value bound(const Value& self, std::string_view name, Method method) {
  return Value(
      Callable{std::string(name),
               [self, name = std::string(name), method](Interpreter&, const Arguments& given) {
                 return method(self, name, given);
               },
               {},
               self.depth() + 1});
}

}  // namespace

const Table<Function>& functions() {
  static const Table<Function> all = {{"range", range},
                                      {"namespace", make_namespace},
                                      {"dict", make_dict},
                                      {"joiner", joiner},
                                      {"cycler", cycler},
                                      {"raise_exception", raise_exception},
                                      {"strftime_now", strftime_now}};
  return all;
}

const Table<Method>& dict_methods() {
  static const Table<Method> all = {
      {"copy", copy}, {"get", get}, {"items", view}, {"keys", view}, {"values", view}};
  return all;
}

const Table<Method>& list_methods() {
  static const Table<Method> all = {{"copy", copy}, {"count", count}, {"index", index}};
  return all;
}

Value find_method(const Value& value, std::string_view name) {
  Method method = nullptr;
  if (value.is_string()) method = find(string_methods(), name);
  if (value.is_dict()) {
    if (has(dict_changes, name)) return forbidden(value, name);
    method = find(dict_methods(), name);
  }
  if (value.is_list()) {
    const List::Kind kind = value.as_list().kind;
    if (kind == List::Kind::list && has(list_changes, name)) return forbidden(value, name);
    if (value.as_list().has_elements() && (name != "copy" || kind == List::Kind::list)) {
      method = find(list_methods(), name);
    }
    // Pairs as groupby makes them.
    const auto& items = value.as_list().items;
    if (kind == List::Kind::tuple && items.size() == 2 && items[1].is_list()) {
      if (name == "grouper") return items[0];
      if (name == "list") return items[1];
    }
  }
  return method != nullptr ? bound(value, name, method) : Value();
}

}  // namespace coppice::chat
