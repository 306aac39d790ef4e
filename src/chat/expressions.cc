#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "chat/interpreter.h"
#include "chat/python_text.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

using Kind = Expression::Kind;

Value missing(const Value& owner, const Value& key) {
  if (key.is_string()) return missing_attribute(owner, key.text().view());
  return Value::undefined(cat(owner.type_name(), " has no element ", repr(key).bytes()));
}

[[noreturn]] void out_of_range() {
  throw TemplateError("a whole number leaves the range of 64 bits");
}

Value arithmetic(std::string_view operation, const Value& a, const Value& b) {
  const bool real = a.is_float() || b.is_float();
  const char kind = operation[0];
  const bool twice = operation.size() == 2;  // ** or //
  if ((kind == '/' || kind == '%') && b.as_double() == 0.0) {
    throw TemplateError(kind == '/' && !twice ? "division by zero"
                                              : "integer division or modulo by zero");
  }
  if (kind == '*' && twice) {
    if (a.as_double() == 0.0 && b.as_double() < 0.0) {
      throw TemplateError("0.0 cannot be raised to a negative power");
    }
    const double power = std::pow(a.as_double(), b.as_double());
    if (real && !std::isfinite(power) && std::isfinite(a.as_double()) &&
        std::isfinite(b.as_double())) {
      throw TemplateError("a power is out of range or no real number");
    }
    if (real || b.as_double() < 0) return Value(power);
    std::int64_t product = 1;
    if (std::fabs(power) > 9.2e18) out_of_range();
    for (std::int64_t base = a.as_int(), e = b.as_int(); e > 0; e >>= 1) {
      if ((e & 1) != 0 && __builtin_mul_overflow(product, base, &product)) out_of_range();
      if (e > 1 && __builtin_mul_overflow(base, base, &base)) out_of_range();
    }
    return Value(product);
  }
  if (kind == '/' && !twice) return Value(a.as_double() / b.as_double());
  if (real) {
    const double x = a.as_double(), y = b.as_double();
    if (kind == '+') return Value(x + y);
    if (kind == '-') return Value(x - y);
    if (kind == '*') return Value(x * y);
    // As Python does it, to the last bit and the sign of zero.
    double rest = std::fmod(x, y), quotient = (x - rest) / y;
    if (rest == 0.0) {
      rest = std::copysign(0.0, y);
    } else if ((rest < 0.0) != (y < 0.0)) {
      rest += y;
      quotient -= 1.0;
    }
    if (kind == '%') return Value(rest);
    return Value(quotient == 0.0 ? std::copysign(0.0, x / y) : std::round(quotient));
  }
  const std::int64_t x = a.as_int(), y = b.as_int();
  std::int64_t result = 0;
  bool overflow = false;
  switch (kind) {
    case '+':
      overflow = __builtin_add_overflow(x, y, &result);
      break;
    case '-':
      overflow = __builtin_sub_overflow(x, y, &result);
      break;
    case '*':
      overflow = __builtin_mul_overflow(x, y, &result);
      break;
    default: {
      if (y == -1) return kind == '/' ? arithmetic("-", Value(0), a) : Value(0);
      // Python rounds down.
      const bool inexact = x % y != 0 && (x < 0) != (y < 0);
      result = kind == '/' ? x / y - (inexact ? 1 : 0) : x % y + (inexact ? y : 0);
    }
  }
  if (overflow) out_of_range();
  return Value(result);
}

// The indices that a Python slice over `size` items takes: from `start`, before `stop`.
struct SliceRange {
  std::int64_t start, stop, step;
  bool goes_on(std::int64_t i) const { return step > 0 ? i < stop : i > stop; }
};

SliceRange slice_range(std::size_t size, const Value& from, const Value& to, const Value& by) {
  const auto n = static_cast<std::int64_t>(size);
  const std::int64_t step = by.is_none() ? 1 : int_of(by, "a slice's step");
  if (step == 0) throw TemplateError("slice step cannot be zero");
  const std::int64_t low = step > 0 ? 0 : -1, high = step > 0 ? n : n - 1;
  const auto bound = [&](const Value& value, std::int64_t fallback) {
    if (value.is_none()) return fallback;
    std::int64_t index = int_of(value, "a slice's bound");
    if (index < 0) index = index < -n ? -1 : index + n;
    return std::clamp(index, low, high);
  };
  const std::int64_t start = bound(from, step > 0 ? low : high);
  const std::int64_t stop = bound(to, step > 0 ? high : low);
  return {start, stop, std::clamp<std::int64_t>(step, -n - 1, n + 1)};
}

Text sliced(const Text& text, const Value& from, const Value& to, const Value& by) {
  const SliceRange range = slice_range(length(text.view()), from, to, by);
  Text out;
  if (!range.goes_on(range.start)) return out;
  std::size_t at = offset(text.view(), static_cast<std::size_t>(range.start));
  if (range.step == 1) {
    const std::string_view rest = text.view().substr(at);
    return text.substr(at, offset(rest, static_cast<std::size_t>(range.stop - range.start)));
  }
  for (std::int64_t i = range.start; range.goes_on(i); i += range.step) {
    out.append(text, at, first_code_point(text.view().substr(at)).bytes);
    if (range.step > 0) {
      at += offset(text.view().substr(at), static_cast<std::size_t>(range.step));
    }
    for (std::int64_t back = range.step; back < 0 && at > 0; ++back) {
      at -= last_code_point(text.view().substr(0, at)).bytes;
    }
  }
  return out;
}

Text repeated(const Text& text, std::int64_t count) {
  Text out;
  if (count <= 0 || text.empty()) return out;
  Budget::expect_bytes(text.size(), static_cast<std::size_t>(count));
  for (std::int64_t i = 0; i < count; ++i) out.append(text);
  return out;
}

}  // namespace

Value missing_attribute(const Value& owner, std::string_view name) {
  return Value::undefined(cat("'", owner.type_name(), "' has no attribute ", quote(name)));
}

std::vector<Value> items_of(const Value& value) {
  if (value.is_undefined()) return {};
  if (value.is_list(List::Kind::generator)) {
    const List& list = value.as_list();
    const auto from = static_cast<std::ptrdiff_t>(std::exchange(list.taken, list.items.size()));
    Budget::spend_steps(list.items.size());
    return {list.items.begin() + from, list.items.end()};
  }
  if (value.is_list()) {
    Budget::spend_steps(value.as_list().items.size());
    return value.as_list().items;
  }
  std::vector<Value> items;
  if (value.is_dict()) {
    Budget::spend_steps(value.as_dict().items.size());
    for (const auto& [key, item] : value.as_dict().items) items.push_back(key);
  } else if (value.is_string()) {
    const Text& text = value.text();
    for (std::size_t at = 0; at < text.size();) {
      Budget::spend_steps(1);
      const std::size_t bytes = first_code_point(text.view().substr(at)).bytes;
      items.emplace_back(text.substr(at, bytes));
      at += bytes;
    }
  } else {
    throw TemplateError(cat("a ", value.type_name(), " is not iterable"));
  }
  return items;
}

Value binary(std::string_view operation, const Value& a, const Value& b) {
  defined(a);
  if (operation == "%" && a.is_string()) return Value(printf_format(a.text(), b));
  defined(b);
  if (a.is_number() && b.is_number()) return arithmetic(operation, a, b);
  if (operation == "+" && a.is_string() && b.is_string()) {
    const bool safe = a.is_safe() || b.is_safe();
    Text sum = safe && !a.is_safe() ? html_escaped(a.text()) : a.text();
    sum.append(safe && !b.is_safe() ? html_escaped(b.text()) : b.text());
    return Value(std::move(sum), safe);
  }
  const auto joinable = [](const Value& value) {
    return value.is_list(List::Kind::list) || value.is_list(List::Kind::tuple);
  };
  if (operation == "+" && joinable(a) && joinable(b) && a.as_list().kind == b.as_list().kind) {
    std::vector<Value> items = items_of(a);
    for (Value& item : items_of(b)) items.push_back(std::move(item));
    return Value::list(std::move(items), a.as_list().kind);
  }
  if (operation == "*" && (b.is_string() || joinable(b)) && (a.is_int() || a.is_bool())) {
    return binary(operation, b, a);
  }
  if (operation == "*" && (b.is_int() || b.is_bool())) {
    if (a.is_string()) return Value(repeated(a.text(), b.as_int()));
    if (joinable(a)) {
      std::vector<Value> items;
      for (std::int64_t i = 0; i < b.as_int() && !a.as_list().items.empty(); ++i) {
        for (Value& item : items_of(a)) items.push_back(std::move(item));
      }
      return Value::list(std::move(items), a.as_list().kind);
    }
  }
  throw TemplateError(cat("unsupported operand types for ", operation, ": a ", a.type_name(),
                          " and a ", b.type_name()));
}

bool contains(const Value& container, const Value& value) {
  if (container.is_string()) {
    return find_text(container.text().view(), text_of(value, "what a string may contain").view()) !=
           std::string_view::npos;
  }
  if (container.is_dict()) return container.as_dict().find(hashable(value)) != nullptr;
  const std::vector<Value> items = items_of(container);
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Value& item) { return equal(item, value); });
  if (found == items.end()) return false;
  if (container.is_list(List::Kind::generator)) {  // it keeps what is behind the item
    container.as_list().taken -= static_cast<std::size_t>(items.end() - found) - 1;
  }
  return true;
}

Value Interpreter::attribute(const Value& value, std::string_view name) {
  defined(value);
  if (value.is_namespace()) {
    spend_search(value.as_namespace().items.size(), name);
    for (const auto& [key, item] : value.as_namespace().items) {
      if (key == name) return item;
    }
  } else if (value.is_callable()) {
    if (value.as_callable().attribute) return value.as_callable().attribute(name);
  } else {
    const Value method = find_method(value, name);
    if (!method.is_none()) return method;
    if (value.is_dict()) {
      if (const Value* found = value.as_dict().named(name)) return *found;
    }
  }
  return missing_attribute(value, name);
}

Value Interpreter::item(const Value& value, const Value& key) {
  defined(value);
  if (value.is_dict()) {
    if (const Value* found = value.as_dict().find(key)) return *found;
  } else if (((value.is_list() && value.as_list().has_elements()) || value.is_string()) &&
             (key.is_int() || key.is_bool())) {
    const bool string = value.is_string();
    const auto size = static_cast<std::int64_t>(string ? length(value.text().view())
                                                       : value.as_list().items.size());
    const std::int64_t at = key.as_int() < 0 ? key.as_int() + size : key.as_int();
    if (at < 0 || at >= size) return missing(value, key);
    const auto index = static_cast<std::size_t>(at);
    if (!string) return value.as_list().items[index];
    const std::size_t begin = offset(value.text().view(), index);
    return Value(
        value.text().substr(begin, first_code_point(value.text().view().substr(begin)).bytes));
  }
  if (key.is_string() && !value.is_dict()) return attribute(value, key.text().view());
  if (key.is_string()) {
    const Value method = find_method(value, key.text().view());
    if (!method.is_none()) return method;
  }
  return missing(value, key);
}

Value Interpreter::slice(const Expression& node) {
  const Value value = evaluate(*node.parts[0]);
  Value bounds[3];
  for (std::size_t i = 0; i < 3; ++i) {
    if (node.parts[i + 1] != nullptr) bounds[i] = evaluate(*node.parts[i + 1]);
  }
  if (defined(value).is_string()) {
    return Value(sliced(value.text(), bounds[0], bounds[1], bounds[2]));
  }
  if (!value.is_list() || !value.as_list().has_elements()) {
    return missing_attribute(value, "slice");
  }
  std::vector<Value> items;
  const auto& all = value.as_list().items;
  const SliceRange range = slice_range(all.size(), bounds[0], bounds[1], bounds[2]);
  for (std::int64_t i = range.start; range.goes_on(i); i += range.step) {
    items.push_back(all[static_cast<std::size_t>(i)]);
  }
  return Value::list(std::move(items),
                     value.as_list().is_tuple() ? List::Kind::tuple : List::Kind::list);
}

Value Interpreter::comparison(const Expression& node) {
  Value left = evaluate(*node.parts[0]);
  for (std::size_t i = 0; i < node.words.size(); ++i) {
    const std::string& word = node.words[i];
    Value right = evaluate(*node.parts[i + 1]);
    bool holds = false;
    if (word == "==" || word == "!=") {
      holds = equal(left, right) == (word == "==");
    } else if (word == "in" || word == "not in") {
      holds = contains(right, left) == (word == "in");
    } else {
      const int order = compare(left, right, word);
      holds = word == "<"    ? order == -1
              : word == ">"  ? order == 1
              : word == "<=" ? order == -1 || order == 0
                             : order == 1 || order == 0;
    }
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Value Interpreter::name(const Expression& node) {
  if (const Value* found = scope_->find(node.text)) return *found;
  if (const Function function = find(functions(), node.text)) {
    return Value(Callable{node.text, function, {}, 1});
  }
  return Value::undefined(cat("'", node.text, "' is undefined"));
}

Arguments Interpreter::evaluate(const std::vector<Argument>& list) {
  Arguments out;
  for (const Argument& argument : list) {
    const Value value = evaluate(*argument.value);
    if (argument.stars == 1) {
      for (Value& item : items_of(value)) out.positional.push_back(std::move(item));
    } else if (argument.stars == 2) {
      if (!value.is_dict()) throw TemplateError("** needs a mapping");
      for (const auto& [key, item] : value.as_dict().items) {
        out.add(text_of(key, "an argument's name"), item);
      }
    } else if (!argument.name.empty()) {
      out.add(Text(argument.name), value);
    } else {
      out.positional.push_back(value);
    }
  }
  return out;
}

Value Interpreter::filter(std::string_view name, const Value& value, const Arguments& arguments) {
  const Filter found = find_filter(name);
  if (found == nullptr) throw TemplateError(cat("No filter named '", name, "'."));
  return found(*this, value, arguments);
}

Filter find_filter(std::string_view name) {
  const Filter found = find(text_filters(), name);
  return found != nullptr ? found : find(sequence_filters(), name);
}

bool Interpreter::test(std::string_view name, const Value& value, const Arguments& arguments) {
  const Test found = find(tests(), name);
  if (found == nullptr) throw TemplateError(cat("No test named '", name, "'."));
  return found(*this, value, arguments);
}

// Filters on a block's text: the innermost filter's part is null.
Value Interpreter::filtered(const Expression& node, const Value* block_text) {
  const Value value = node.parts[0] != nullptr && node.parts[0]->kind == Kind::filter
                          ? filtered(*node.parts[0], block_text)
                      : node.parts[0] != nullptr ? evaluate(*node.parts[0])
                                                 : *block_text;
  return filter(node.text, value, evaluate(node.arguments));
}

Value Interpreter::evaluate(const Expression& node) {
  Budget::spend_steps(1);
  if (++depth_ > 800) {
    --depth_;
    throw TemplateError("calls and blocks nest too deep; a macro may call itself without end");
  }
  struct Leave {
    int& depth;
    ~Leave() { --depth; }
  } const leave{depth_};
  line_ = node.line;
  switch (node.kind) {
    case Kind::constant:
      return node.value;
    case Kind::name:
      return name(node);
    case Kind::list:
    case Kind::tuple: {
      std::vector<Value> items;
      for (const auto& part : node.parts) items.push_back(evaluate(*part));
      return Value::list(std::move(items),
                         node.kind == Kind::tuple ? List::Kind::tuple : List::Kind::list);
    }
    case Kind::dict: {
      std::vector<std::pair<Value, Value>> items;
      for (std::size_t i = 0; i < node.parts.size(); i += 2) {
        Value key = evaluate(*node.parts[i]);
        Value value = evaluate(*node.parts[i + 1]);
        hashable(key);
        const auto same = std::find_if(items.begin(), items.end(),
                                       [&](const auto& item) { return equal(item.first, key); });
        if (same != items.end()) {
          same->second = std::move(value);
        } else {
          items.emplace_back(std::move(key), std::move(value));
        }
      }
      return Value::dict(std::move(items));
    }
    case Kind::attribute:
      return attribute(evaluate(*node.parts[0]), node.text);
    case Kind::item: {
      const Value owner = evaluate(*node.parts[0]);
      return item(owner, evaluate(*node.parts[1]));
    }
    case Kind::slice:
      return slice(node);
    case Kind::call: {
      const Value callee = evaluate(*node.parts[0]);
      return call(callee, evaluate(node.arguments));
    }
    case Kind::filter:
      return filtered(node, nullptr);
    case Kind::test: {
      const Value value = evaluate(*node.parts[0]);
      return Value(test(node.text, value, evaluate(node.arguments)));
    }
    case Kind::negate:
    case Kind::plus: {
      const Value value = evaluate(*node.parts[0]);
      if (!defined(value).is_number()) {
        throw TemplateError(cat("bad operand type for a sign: a ", value.type_name()));
      }
      if (value.is_float()) return node.kind == Kind::negate ? Value(-value.as_double()) : value;
      return binary(node.kind == Kind::negate ? "-" : "+", Value(0), value);
    }
    case Kind::invert:
      return Value(!is_true(evaluate(*node.parts[0])));
    case Kind::both: {
      const Value left = evaluate(*node.parts[0]);
      return is_true(left) ? evaluate(*node.parts[1]) : left;
    }
    case Kind::either: {
      const Value left = evaluate(*node.parts[0]);
      return is_true(left) ? left : evaluate(*node.parts[1]);
    }
    case Kind::binary: {
      const Value left = evaluate(*node.parts[0]);
      return binary(node.text, left, evaluate(*node.parts[1]));
    }
    case Kind::comparison:
      return comparison(node);
    case Kind::concat: {
      Text out;
      for (const auto& part : node.parts) append_str(evaluate(*part), out);
      return Value(std::move(out));
    }
    case Kind::conditional:
      if (is_true(evaluate(*node.parts[0]))) return evaluate(*node.parts[1]);
      if (node.parts[2] != nullptr) return evaluate(*node.parts[2]);
      return Value::undefined(
          "the inline if-expression evaluated to false and no else section was defined.");
  }
  return Value();
}

}  // namespace coppice::chat
