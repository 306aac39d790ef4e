// The values that templates compute with: Python's, as far as Jinja shows them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "chat/budget.h"
#include "chat/text.h"

namespace coppice::chat {

class Interpreter;
class Value;

/// What stops a rendering; ChatTemplate adds the name and the line. Its text is Jinja's where
/// that is what people search for.
struct TemplateError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct None {};
/// A name, attribute or element that is not there: prints as nothing, and stops the rendering
/// with `message` when it is computed with.
struct Undefined {
  std::shared_ptr<const std::string> message;
};
/// `safe` text (Markup): adding to it escapes the other side.
struct String {
  std::shared_ptr<const Text> text;
  bool safe = false;
};
/// Whatever has items one behind the other. Python tells these kinds apart: a generator is true
/// even if it is empty, has no length and gives its items once; views of a dict have no elements.
struct List {
  enum class Kind { list, tuple, range, generator, keys, values, items };
  std::vector<Value> items;
  Kind kind = Kind::list;
  int depth = 1;
  std::size_t nodes = 1;          ///< values in it at all levels, shared ones counted each time
  std::string shown = {};         ///< a range's text
  mutable std::size_t taken = 0;  ///< items that a generator gave
  bool is_tuple() const { return kind == Kind::tuple; }
  /// items[i] is an element, and slices are.
  bool has_elements() const { return kind <= Kind::range; }
};
struct Dict {
  std::vector<std::pair<Value, Value>> items;  ///< in the order added
  int depth = 1;
  std::size_t nodes = 1;
  const Value* find(const Value& key) const;
  const Value* named(std::string_view key) const;
};
/// The one kind that changes. Owned by the interpreter, so that cycles are no leaks.
struct Namespace {
  std::vector<std::pair<std::string, Value>> items;
};

/// The words in the brackets of a call, as they stand there; arguments.h matches them with what is
/// called. No name is there twice.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<Text, Value>> named;

  /// Null if there is none.
  const Value* find(std::string_view name) const;
  /// Throws TemplateError if the name is there already.
  void add(const Text& name, const Value& value);
};

struct Callable {
  std::string name;
  std::function<Value(Interpreter&, const Arguments&)> call;
  std::function<Value(std::string_view)> attribute;  ///< empty: none
  int depth = 1;
};

/// Immutable but for namespaces and what generators gave; copies share. Containers nest at most
/// `deepest` levels and hold at most `most_nodes` values, so that recursion over them ends, and
/// soon.
class Value {
 public:
  static constexpr int deepest = 100;
  static constexpr std::size_t most_nodes = 4'000'000;

  Value() : data_(None{}) {}
  Value(bool value) : data_(value) {}
  Value(int value) : data_(std::int64_t{value}) {}
  Value(std::int64_t value) : data_(value) {}
  Value(std::size_t value) : data_(static_cast<std::int64_t>(value)) {}
  Value(double value) : data_(value) {}
  Value(const char*) = delete;
  Value(Text text, bool safe = false);
  Value(std::string text) : Value(Text(std::move(text))) {}
  Value(Undefined undefined) : data_(std::move(undefined)) {}
  Value(Namespace* names) : data_(names) {}
  Value(Callable callable);
  static Value list(std::vector<Value> items, List::Kind kind = List::Kind::list);
  static Value tuple(std::vector<Value> items) { return list(std::move(items), List::Kind::tuple); }
  static Value generator(std::vector<Value> items) {
    return list(std::move(items), List::Kind::generator);
  }
  static Value range(std::vector<Value> items, std::string shown);
  static Value dict(std::vector<std::pair<Value, Value>> items);
  static Value undefined(std::string message);

  bool is_none() const { return std::holds_alternative<None>(data_); }
  bool is_undefined() const { return std::holds_alternative<Undefined>(data_); }
  bool is_bool() const { return std::holds_alternative<bool>(data_); }
  bool is_int() const { return std::holds_alternative<std::int64_t>(data_); }
  bool is_float() const { return std::holds_alternative<double>(data_); }
  bool is_number() const { return is_bool() || is_int() || is_float(); }
  bool is_string() const { return std::holds_alternative<String>(data_); }
  bool is_list() const { return std::holds_alternative<std::shared_ptr<const List>>(data_); }
  bool is_list(List::Kind kind) const { return is_list() && as_list().kind == kind; }
  bool is_dict() const { return std::holds_alternative<std::shared_ptr<const Dict>>(data_); }
  bool is_namespace() const { return std::holds_alternative<Namespace*>(data_); }
  bool is_callable() const {
    return std::holds_alternative<std::shared_ptr<const Callable>>(data_);
  }

  bool as_bool() const { return std::get<bool>(data_); }
  /// Returns the value of a bool or an int.
  std::int64_t as_int() const { return is_bool() ? as_bool() : std::get<std::int64_t>(data_); }
  /// Returns the value of any number.
  double as_double() const {
    return is_float() ? std::get<double>(data_) : static_cast<double>(as_int());
  }
  const Text& text() const { return *std::get<String>(data_).text; }
  bool is_safe() const { return is_string() && std::get<String>(data_).safe; }
  const List& as_list() const { return *std::get<std::shared_ptr<const List>>(data_); }
  const Dict& as_dict() const { return *std::get<std::shared_ptr<const Dict>>(data_); }
  Namespace& as_namespace() const { return *std::get<Namespace*>(data_); }
  const Callable& as_callable() const { return *std::get<std::shared_ptr<const Callable>>(data_); }
  const Undefined& as_undefined() const { return std::get<Undefined>(data_); }

  /// Levels of containers, itself included; 0: no container.
  int depth() const;
  std::size_t nodes() const;
  /// "dict object": as Jinja's messages name types.
  std::string type_name() const;

 private:
  std::variant<None, Undefined, bool, std::int64_t, double, String, std::shared_ptr<const List>,
               std::shared_ptr<const Dict>, Namespace*, std::shared_ptr<const Callable>>
      data_;
};

/// Charges a search for `name` among so many, which are compared one by one.
void spend_search(std::size_t names, std::string_view name);
/// Throws TemplateError if the value is undefined.
const Value& defined(const Value& value);
/// Throws TemplateError if the value can be no key of a mapping.
const Value& hashable(const Value& value);
bool is_true(const Value& value);
bool equal(const Value& a, const Value& b);
/// -1, 0 or 1; 2: not a number is involved. Throws TemplateError for types that have no order.
int compare(const Value& a, const Value& b, std::string_view operation);
/// The value's text; TemplateError names `what` if it is none.
const Text& text_of(const Value& value, std::string_view what);
/// `real` without its fraction; TemplateError if that has more than 64 bits.
std::int64_t whole_number(double real);
/// A whole number; TemplateError names `what` if it is none.
std::int64_t int_of(const Value& value, std::string_view what);

}  // namespace coppice::chat
