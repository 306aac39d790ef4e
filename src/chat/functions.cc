// Global functions, and methods of lists and mappings.
#include <algorithm>
#include <array>
#include <ctime>

#include "base/error.h"
#include "chat/interpreter.h"
#include "chat/python_text.h"

namespace coppice::chat {
namespace {

Value function(std::string name, std::function<Value(Interpreter&, const Arguments&)> call) {
  return Value(Callable{std::move(name), std::move(call), {}, 1});
}

Value range(Interpreter&, const Arguments& given) {
  given.check("range", 1, 3);
  const auto number = [&](std::size_t i) { return int_of(given.positional[i], "range()'s bound"); };
  const std::size_t count = given.positional.size();
  const std::int64_t from = count > 1 ? number(0) : 0;
  const std::int64_t to = count > 1 ? number(1) : number(0);
  const std::int64_t by = count > 2 ? number(2) : 1;
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

Value make_namespace(Interpreter& interpreter, const Arguments& given) {
  Namespace* names = interpreter.new_namespace();
  const auto set = [&](const std::string& name, const Value& value) {
    spend_search(8 * names->items.size());
    for (auto& [key, old] : names->items) {
      if (key == name) {
        old = value;
        return;
      }
    }
    names->items.emplace_back(name, value);
  };
  for (const Value& value : given.positional) {
    if (value.is_namespace()) {
      const auto items = value.as_namespace().items;
      for (const auto& [name, item] : items) set(name, item);
    } else if (value.is_dict()) {
      for (const auto& [name, item] : value.as_dict().items) {
        set(text_of(name, "a name").bytes(), item);
      }
    } else {
      throw TemplateError("namespace() takes names and mappings");
    }
  }
  for (const auto& [name, value] : given.named) set(name.bytes(), value);
  return Value(names);
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
  for (const Value& value : given.positional) {
    if (value.is_dict()) {
      for (const auto& [key, item] : value.as_dict().items) set(key, item);
      continue;
    }
    for (const Value& pair : items_of(value)) {
      const std::vector<Value> two = items_of(pair);
      if (two.size() != 2) throw TemplateError("dict() takes mappings and pairs");
      set(two[0], two[1]);
    }
  }
  for (const auto& [name, value] : given.named) set(Value(name), value);
  return Value::dict(std::move(items));
}

Value joiner(Interpreter&, const Arguments& given) {
  given.check("joiner", 0, 1, {"sep"});
  const Value* sep = given.get(0, "sep");
  const Text text = sep != nullptr ? str(*sep) : Text(", ");
  return function("joiner",
                  [text, used = std::make_shared<bool>(false)](Interpreter&, const Arguments&) {
                    return std::exchange(*used, true) ? Value(text) : Value(std::string());
                  });
}

Value cycler(Interpreter&, const Arguments& given) {
  if (given.positional.empty()) throw TemplateError("at least one item has to be provided");
  const Value items = Value::list(given.positional);
  const auto at = std::make_shared<std::size_t>(0);
  const auto current = [items, at] { return items.as_list().items[*at]; };
  Callable cycle{"cycler", {}, {}, items.depth() + 1};
  cycle.attribute = [=](std::string_view name) {
    if (name == "current") return current();
    if (name == "next") {
      Value next = function("next", [=](Interpreter&, const Arguments&) {
        Value value = current();
        *at = (*at + 1) % items.as_list().items.size();
        return value;
      });
      return next;
    }
    if (name == "reset") {
      return function("reset", [at](Interpreter&, const Arguments&) {
        *at = 0;
        return Value();
      });
    }
    return Value::undefined(cat("'Cycler object' has no attribute '", name, "'"));
  };
  return Value(std::move(cycle));
}

Value raise_exception(Interpreter&, const Arguments& given) {
  given.check("raise_exception", 1, 1, {"message"});
  throw TemplateError(str(*given.get(0, "message")).bytes());
}

Value strftime_now(Interpreter& interpreter, const Arguments& given) {
  given.check("strftime_now", 1, 1, {"format"});
  const Text& format = text_of(*given.get(0, "format"), "a time's format");
  const std::time_t now = interpreter.now();
  std::tm parts{};
  localtime_r(&now, &parts);
  // The character before tells an empty result from one that does not fit.
  char text[512];
  const std::size_t size = std::strftime(text, sizeof text, (" " + format.bytes()).c_str(), &parts);
  if (size == 0) throw TemplateError("a time's format is too long");
  return Value(Text(std::string(text + 1, size - 1), format.has_foreign()));
}

constexpr std::array dict_methods = {"copy", "get", "items", "keys", "values"};
constexpr std::array dict_changes = {"clear", "pop", "popitem", "setdefault", "update"};
constexpr std::array list_methods = {"copy", "count", "index"};
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

Value dict_method(const Value& self, std::string_view name, const Arguments& given) {
  const Dict& dict = self.as_dict();
  if (name == "get") {
    given.check("get", 1, 2, {"", ""});
    const Value* found = dict.find(given.positional.at(0));
    if (found != nullptr) return *found;
    return given.positional.size() > 1 ? given.positional[1] : Value();
  }
  given.check(name, 0, 0);
  if (name == "copy") return self;
  using Kind = List::Kind;
  const Kind kind = name == "keys" ? Kind::keys : name == "values" ? Kind::values : Kind::items;
  std::vector<Value> out;
  for (const auto& [key, item] : dict.items) {
    out.push_back(kind == Kind::keys     ? key
                  : kind == Kind::values ? item
                                         : Value::tuple({key, item}));
  }
  return Value::list(std::move(out), kind);
}

Value list_method(const Value& self, std::string_view name, const Arguments& given) {
  if (name == "copy") return self;
  given.check(name, 1, 1);
  const std::vector<Value> items = items_of(self);
  const auto same = [&](const Value& item) { return equal(item, given.positional.at(0)); };
  if (name == "count") {
    return Value(static_cast<std::int64_t>(std::count_if(items.begin(), items.end(), same)));
  }
  const auto found = std::find_if(items.begin(), items.end(), same);
  if (found == items.end()) throw TemplateError("the value is not in the list");
  return Value(static_cast<std::int64_t>(found - items.begin()));
}

Value bound(const Value& self, std::string_view name,
            Value (*method)(const Value&, std::string_view, const Arguments&)) {
  return Value(
      Callable{std::string(name),
               [self, name = std::string(name), method](Interpreter&, const Arguments& given) {
                 return method(self, name, given);
               },
               {},
               self.depth() + 1});
}

using Call = Value (*)(Interpreter&, const Arguments&);
constexpr std::array<std::pair<std::string_view, Call>, 7> all_functions = {
    {{"range", range},
     {"namespace", make_namespace},
     {"dict", make_dict},
     {"joiner", joiner},
     {"cycler", cycler},
     {"raise_exception", raise_exception},
     {"strftime_now", strftime_now}}};

}  // namespace

Value find_function(std::string_view name) {
  for (const auto& [key, call] : all_functions) {
    if (key == name) return function(std::string(name), call);
  }
  return Value();
}
std::vector<std::string_view> function_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, call] : all_functions) names.push_back(name);
  return names;
}

Value find_method(const Value& value, std::string_view name) {
  if (value.is_string() && is_string_method(name)) {
    return bound(value, name, [](const Value& self, std::string_view word, const Arguments& given) {
      look_at_all(self, given);
      return string_method(self.text(), word, given);
    });
  }
  if (value.is_dict()) {
    if (has(dict_changes, name)) return forbidden(value, name);
    if (has(dict_methods, name)) return bound(value, name, dict_method);
  }
  if (value.is_list()) {
    const List::Kind kind = value.as_list().kind;
    const bool tuple = kind == List::Kind::tuple;
    if (kind == List::Kind::list && has(list_changes, name)) return forbidden(value, name);
    if (has(list_methods, name) && value.as_list().has_elements() &&
        (name != "copy" || kind == List::Kind::list)) {
      return bound(value, name, list_method);
    }
    // Pairs as groupby makes them.
    if (tuple && value.as_list().items.size() == 2 && value.as_list().items[1].is_list()) {
      if (name == "grouper") return value.as_list().items[0];
      if (name == "list") return value.as_list().items[1];
    }
  }
  return Value();
}

}  // namespace coppice::chat
