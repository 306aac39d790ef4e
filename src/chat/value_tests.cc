// What may follow "is".
#include <map>

#include "base/error.h"
#include "chat/interpreter.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

using Alone = bool (*)(const Value&);
using OfTwo = bool (*)(const Value&, const Value&);

template <int... orders>
bool ordered(const Value& value, const Value& other) {
  const int order = compare(value, other, "<");
  return ((order == orders) || ...);
}

std::int64_t remainder(const Value& value, const Value& by) {
  const Value rest = binary("%", value, by);
  return rest.is_float() ? (rest.as_double() != 0.0 ? 1 : 0) : int_of(rest, "the remainder");
}

bool all_cased(const Value& value, bool upper) {
  if (!value.is_string()) return false;
  bool any = false;
  const std::string_view text = value.text().view();
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at));
    if (upper ? is_lower(c.value) : is_upper(c.value)) return false;
    any = any || (upper ? is_upper(c.value) : is_lower(c.value));
    at += c.bytes;
  }
  return any;
}

bool differ(const Value& value, const Value& other) { return !equal(value, other); }

const std::map<std::string_view, Alone>& tests_of_one() {
  using V = const Value;
  static const std::map<std::string_view, Alone> all = {
      {"defined", [](V& v) { return !v.is_undefined(); }},
      {"undefined", [](V& v) { return v.is_undefined(); }},
      {"none", [](V& v) { return v.is_none(); }},
      {"boolean", [](V& v) { return v.is_bool(); }},
      {"true", [](V& v) { return v.is_bool() && v.as_bool(); }},
      {"false", [](V& v) { return v.is_bool() && !v.as_bool(); }},
      {"integer", [](V& v) { return v.is_int(); }},
      {"float", [](V& v) { return v.is_float(); }},
      {"number", [](V& v) { return v.is_number(); }},
      {"string", [](V& v) { return v.is_string(); }},
      {"mapping", [](V& v) { return v.is_dict(); }},
      {"callable", [](V& v) { return v.is_callable() || v.is_undefined(); }},
      // Undefined values have a length, 0, and an element method, which throws.
      {"sequence",
       [](V& v) {
         return v.is_string() || (v.is_list() && v.as_list().has_elements()) || v.is_dict() ||
                v.is_undefined();
       }},
      {"iterable",
       [](V& v) { return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined(); }},
      {"escaped", [](V& v) { return v.is_safe(); }},
      {"lower", [](V& v) { return all_cased(v, false); }},
      {"upper", [](V& v) { return all_cased(v, true); }},
      {"even", [](V& v) { return remainder(v, Value(2)) == 0; }},
      {"odd", [](V& v) { return remainder(v, Value(2)) == 1; }},
      {"filter",
       [](V& v) {
         const std::string_view word = text_of(v, "a filter").view();
         return find_text_filter(word) != nullptr || find_sequence_filter(word) != nullptr;
       }},
      {"test", [](V& v) { return is_test(text_of(v, "a test").view()); }}};
  return all;
}

const std::map<std::string_view, OfTwo>& tests_of_two() {
  using V = const Value;
  static const std::map<std::string_view, OfTwo> all = {
      {"divisibleby", [](V& v, V& w) { return remainder(v, w) == 0; }},
      {"in", [](V& v, V& w) { return contains(w, v); }},
      {"sameas", [](V& v, V& w) { return v.type_name() == w.type_name() && equal(v, w); }},
      {"==", equal},
      {"eq", equal},
      {"equalto", equal},
      {"!=", differ},
      {"ne", differ},
      {"<", ordered<-1>},
      {"lt", ordered<-1>},
      {"lessthan", ordered<-1>},
      {"<=", ordered<-1, 0>},
      {"le", ordered<-1, 0>},
      {">", ordered<1>},
      {"gt", ordered<1>},
      {"greaterthan", ordered<1>},
      {">=", ordered<1, 0>},
      {"ge", ordered<1, 0>}};
  return all;
}

}  // namespace

bool is_test(std::string_view name) {
  return tests_of_one().contains(name) || tests_of_two().contains(name);
}

bool run_test(std::string_view name, const Value& value, const Arguments& given) {
  if (const auto found = tests_of_one().find(name); found != tests_of_one().end()) {
    given.check(name, 0, 0);
    return found->second(value);
  }
  const auto found = tests_of_two().find(name);
  if (found == tests_of_two().end()) throw TemplateError(cat("No test named '", name, "'."));
  given.check(name, 1, 1);
  return found->second(value, given.positional[0]);
}

std::vector<std::string_view> test_names() {
  std::vector<std::string_view> names;
  for (const auto& [name, test] : tests_of_one()) names.push_back(name);
  for (const auto& [name, test] : tests_of_two()) names.push_back(name);
  return names;
}

}  // namespace coppice::chat
