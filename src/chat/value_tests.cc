// What may follow "is".
#include <map>

#include "base/error.h"
#include "chat/interpreter.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

const Value& other(const Arguments& given) {
  given.check("a test", 1, 1);
  return given.positional.empty() ? given.named[0].second : given.positional[0];
}

template <int... orders>
bool ordered(Interpreter&, const Value& value, const Arguments& given) {
  const int order = compare(value, other(given), "<");
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

}  // namespace

Test find_test(std::string_view name) {
  using I = Interpreter;
  using V = const Value;
  using A = const Arguments;
  static const Test equals = [](I&, V& v, A& a) { return equal(v, other(a)); };
  static const Test differs = [](I&, V& v, A& a) { return !equal(v, other(a)); };
  static const std::map<std::string_view, Test> all = {
      {"defined", [](I&, V& v, A&) { return !v.is_undefined(); }},
      {"undefined", [](I&, V& v, A&) { return v.is_undefined(); }},
      {"none", [](I&, V& v, A&) { return v.is_none(); }},
      {"boolean", [](I&, V& v, A&) { return v.is_bool(); }},
      {"true", [](I&, V& v, A&) { return v.is_bool() && v.as_bool(); }},
      {"false", [](I&, V& v, A&) { return v.is_bool() && !v.as_bool(); }},
      {"integer", [](I&, V& v, A&) { return v.is_int(); }},
      {"float", [](I&, V& v, A&) { return v.is_float(); }},
      {"number", [](I&, V& v, A&) { return v.is_number(); }},
      {"string", [](I&, V& v, A&) { return v.is_string(); }},
      {"mapping", [](I&, V& v, A&) { return v.is_dict(); }},
      {"callable", [](I&, V& v, A&) { return v.is_callable() || v.is_undefined(); }},
      // Undefined values have a length, 0, and an element method, which throws.
      {"sequence",
       [](I&, V& v, A&) {
         return v.is_string() || (v.is_list() && v.as_list().has_elements()) || v.is_dict() ||
                v.is_undefined();
       }},
      {"iterable",
       [](I&, V& v, A&) {
         return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined();
       }},
      {"escaped", [](I&, V& v, A&) { return v.is_safe(); }},
      {"lower", [](I&, V& v, A&) { return all_cased(v, false); }},
      {"upper", [](I&, V& v, A&) { return all_cased(v, true); }},
      {"even", [](I&, V& v, A&) { return remainder(v, Value(2)) == 0; }},
      {"odd", [](I&, V& v, A&) { return remainder(v, Value(2)) == 1; }},
      {"divisibleby", [](I&, V& v, A& a) { return remainder(v, other(a)) == 0; }},
      {"in", [](I&, V& v, A& a) { return contains(other(a), v); }},
      {"sameas",
       [](I&, V& v, A& a) {
         const Value& w = other(a);
         return v.type_name() == w.type_name() && equal(v, w);
       }},
      {"filter",
       [](I&, V& v, A&) {
         const std::string_view word = text_of(v, "a filter").view();
         return find_text_filter(word) != nullptr || find_sequence_filter(word) != nullptr;
       }},
      {"test", [](I&, V& v, A&) { return find_test(text_of(v, "a test").view()) != nullptr; }},
      {"==", equals},
      {"eq", equals},
      {"equalto", equals},
      {"!=", differs},
      {"ne", differs},
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
  const auto found = all.find(name);
  return found == all.end() ? nullptr : found->second;
}

}  // namespace coppice::chat
