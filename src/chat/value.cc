#include "chat/value.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"

namespace coppice::chat {
namespace {

template <typename Container>
void count(Container& container, const Value& item) {
  if (item.depth() >= Value::deepest) {
    throw TemplateError(cat("lists and mappings nest more than ", Value::deepest, " levels"));
  }
  container.depth = std::max(container.depth, item.depth() + 1);
  container.nodes += item.nodes();
  if (container.nodes > Value::most_nodes) {
    throw TemplateError(cat("a list or mapping holds more than ", Value::most_nodes, " values"));
  }
}

// Bytes that values take besides their texts.
constexpr std::size_t text_bytes = 96, container_bytes = 64, callable_bytes = 256;

template <typename Item>
void spend_items(const std::vector<Item>& items) {
  Budget::spend_steps(items.size());
  Budget::spend_bytes(container_bytes + items.size() * sizeof(Item));
}

}  // namespace

const Value* Dict::named(std::string_view key) const {
  spend_search(items.size(), key);
  for (const auto& [name, value] : items) {
    if (name.is_string() && name.text().view() == key) return &value;
  }
  return nullptr;
}

const Value* Dict::find(const Value& key) const {
  if (key.is_string()) return named(key.text().view());
  for (const auto& [name, value] : items) {
    if (equal(name, key)) return &value;
  }
  return nullptr;
}

const Value* Arguments::find(std::string_view name) const {
  spend_search(named.size(), name);
  for (const auto& [key, value] : named) {
    if (key.view() == name) return &value;
  }
  return nullptr;
}

void Arguments::add(const Text& name, const Value& value) {
  if (find(name.view()) != nullptr) {
    throw TemplateError(cat("the argument ", quote(name.view()), " is given twice"));
  }
  named.emplace_back(name, value);
}

void spend_search(std::size_t names, std::string_view name) {
  Budget::look_at(names * (1 + name.size() / 64));
}

Value::Value(Callable callable) {
  Budget::spend_bytes(callable_bytes);
  data_ = std::make_shared<const Callable>(std::move(callable));
}

Value::Value(Text text, bool safe) {
  Budget::spend_bytes(text_bytes);
  data_ = String{std::make_shared<const Text>(std::move(text)), safe};
}

Value Value::list(std::vector<Value> items, List::Kind kind) {
  spend_items(items);
  List list{std::move(items), kind};
  for (const Value& item : list.items) count(list, item);
  Value value;
  value.data_ = std::make_shared<const List>(std::move(list));
  return value;
}

Value Value::range(std::vector<Value> items, std::string shown) {
  spend_items(items);
  List list{std::move(items), List::Kind::range};
  list.shown = std::move(shown);
  Value value;
  value.data_ = std::make_shared<const List>(std::move(list));
  return value;
}

Value Value::dict(std::vector<std::pair<Value, Value>> items) {
  spend_items(items);
  Dict dict{std::move(items), 1, 1};
  for (const auto& [key, item] : dict.items) {
    count(dict, key);
    count(dict, item);
  }
  Value value;
  value.data_ = std::make_shared<const Dict>(std::move(dict));
  return value;
}

Value Value::undefined(std::string message) {
  return Value(Undefined{std::make_shared<const std::string>(std::move(message))});
}

int Value::depth() const {
  if (is_list()) return as_list().depth;
  if (is_dict()) return as_dict().depth;
  if (is_callable()) return as_callable().depth;
  return 0;
}

std::size_t Value::nodes() const {
  if (is_list()) return as_list().nodes;
  if (is_dict()) return as_dict().nodes;
  return 1;
}

std::string Value::type_name() const {
  if (is_none()) return "None";
  if (is_undefined()) return "Undefined";
  if (is_bool()) return "bool object";
  if (is_int()) return "int object";
  if (is_float()) return "float object";
  if (is_string()) return "str object";
  if (is_list()) {
    static constexpr const char* names[] = {"list",      "tuple",       "range",     "generator",
                                            "dict_keys", "dict_values", "dict_items"};
    return cat(names[static_cast<int>(as_list().kind)], " object");
  }
  if (is_dict()) return "dict object";
  if (is_namespace()) return "jinja2.utils.Namespace object";
  return cat(as_callable().name, " object");
}

const Value& defined(const Value& value) {
  if (value.is_undefined()) throw TemplateError(*value.as_undefined().message);
  return value;
}

const Value& hashable(const Value& value) {
  if (value.is_dict() || (value.is_list() && value.as_list().kind == List::Kind::list)) {
    throw TemplateError(cat("unhashable type: ", value.type_name()));
  }
  if (value.is_list(List::Kind::tuple)) {
    Budget::spend_steps(value.as_list().items.size());
    for (const Value& item : value.as_list().items) hashable(item);
  }
  return value;
}

bool is_true(const Value& value) {
  if (value.is_none() || value.is_undefined()) return false;
  if (value.is_bool() || value.is_int()) return value.as_int() != 0;
  if (value.is_float()) return value.as_double() != 0.0;
  if (value.is_string()) return !value.text().empty();
  if (value.is_list(List::Kind::generator)) return true;
  if (value.is_list()) return !value.as_list().items.empty();
  if (value.is_dict()) return !value.as_dict().items.empty();
  return true;
}

bool equal(const Value& a, const Value& b) {
  Budget::spend_steps(1);
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) return a.as_double() == b.as_double();
    return a.as_int() == b.as_int();
  }
  if (a.is_string() && b.is_string()) {
    if (a.text().size() == b.text().size()) Budget::look_at(a.text().size() / 64);
    return a.text() == b.text();
  }
  if (a.is_list() && b.is_list()) {
    const List &x = a.as_list(), &y = b.as_list();
    if (x.kind != y.kind) return false;
    if (x.kind == List::Kind::generator || x.kind == List::Kind::values) return &x == &y;
    if (x.kind == List::Kind::keys || x.kind == List::Kind::items) {  // in any order
      return x.items.size() == y.items.size() &&
             std::all_of(x.items.begin(), x.items.end(), [&](const Value& item) {
               return std::any_of(y.items.begin(), y.items.end(),
                                  [&](const Value& other) { return equal(item, other); });
             });
    }
    return std::equal(x.items.begin(), x.items.end(), y.items.begin(), y.items.end(), equal);
  }
  if (a.is_dict() && b.is_dict()) {
    const Dict &x = a.as_dict(), &y = b.as_dict();
    if (x.items.size() != y.items.size()) return false;
    return std::all_of(x.items.begin(), x.items.end(), [&](const auto& item) {
      const Value* other = y.find(item.first);
      return other != nullptr && equal(item.second, *other);
    });
  }
  if (a.is_namespace() && b.is_namespace()) return &a.as_namespace() == &b.as_namespace();
  if (a.is_callable() && b.is_callable()) return &a.as_callable() == &b.as_callable();
  return (a.is_none() && b.is_none()) || (a.is_undefined() && b.is_undefined());
}

int compare(const Value& a, const Value& b, std::string_view operation) {
  Budget::look_at(2);
  defined(a);
  defined(b);
  if (a.is_number() && b.is_number()) {
    if (a.is_float() || b.is_float()) {
      const double x = a.as_double(), y = b.as_double();
      return x < y ? -1 : x > y ? 1 : x == y ? 0 : 2;
    }
    return a.as_int() < b.as_int() ? -1 : a.as_int() > b.as_int() ? 1 : 0;
  }
  // UTF-8 sorts as its code points do.
  if (a.is_string() && b.is_string()) {
    Budget::look_at(std::min(a.text().size(), b.text().size()) / 64);
    const int order = a.text().bytes().compare(b.text().bytes());
    return order < 0 ? -1 : order > 0 ? 1 : 0;
  }
  if ((a.is_list(List::Kind::list) && b.is_list(List::Kind::list)) ||
      (a.is_list(List::Kind::tuple) && b.is_list(List::Kind::tuple))) {
    const auto &x = a.as_list().items, &y = b.as_list().items;
    for (std::size_t i = 0; i < std::min(x.size(), y.size()); ++i) {
      if (!equal(x[i], y[i])) return compare(x[i], y[i], operation);
    }
    return x.size() < y.size() ? -1 : x.size() > y.size() ? 1 : 0;
  }
  throw TemplateError(
      cat("'", operation, "' not supported between a ", a.type_name(), " and a ", b.type_name()));
}

const Text& text_of(const Value& value, std::string_view what) {
  if (!defined(value).is_string()) {
    throw TemplateError(cat(what, " must be a string, not a ", value.type_name()));
  }
  return value.text();
}

std::int64_t whole_number(double real) {
  if (!(std::fabs(real) < 9.2e18)) {
    throw TemplateError("a whole number leaves the range of 64 bits");
  }
  return static_cast<std::int64_t>(real);
}

std::int64_t int_of(const Value& value, std::string_view what) {
  if (!defined(value).is_int() && !value.is_bool()) {
    throw TemplateError(cat(what, " must be a whole number, not a ", value.type_name()));
  }
  return value.as_int();
}

}  // namespace coppice::chat
