// What may follow "is".
#include "base/error.h"
#include "chat/arguments.h"
#include "chat/interpreter.h"
#include "chat/python_text.h"
#include "chat/unicode.h"

namespace coppice::chat {
namespace {

// The one argument of a test that compares.
const Value& other(const Arguments& given) { return Bound(given, "a test", {""}, 1)[0]; }

// Makes a test without arguments.
template <auto holds>
bool plain(Interpreter&, const Value& value, const Arguments& given) {
  static_cast<void>(Bound(given, "a test"));
  return holds(value);
}

template <int... orders>
bool ordered(Interpreter&, const Value& value, const Arguments& given) {
  const int order = compare(value, other(given), "<");
  return ((order == orders) || ...);
}

bool leaves(const Value& value, const Value& by, int rest) {
  return equal(binary("%", value, by), Value(rest));
}

bool all_cased(const Value& value, bool upper) {
  bool any = false;
  const Text written = str(value);
  const std::string_view text = written.view();
  for (std::size_t at = 0; at < text.size();) {
    const CodePoint c = first_code_point(text.substr(at));
    if (upper ? is_lower(c.value) : is_upper(c.value)) return false;
    any = any || (upper ? is_upper(c.value) : is_lower(c.value));
    at += c.bytes;
  }
  return any;
}

}  // namespace

const Table<Test>& tests() {
  using I = Interpreter;
  using V = const Value;
  using A = const Arguments;
  static const Test equals = [](I&, V& v, A& a) { return equal(v, other(a)); };
  static const Test differs = [](I&, V& v, A& a) { return !equal(v, other(a)); };
  static const Table<Test> all = {
      {"defined", plain<[](V& v) { return !v.is_undefined(); }>},
      {"undefined", plain<[](V& v) { return v.is_undefined(); }>},
      {"none", plain<[](V& v) { return v.is_none(); }>},
      {"boolean", plain<[](V& v) { return v.is_bool(); }>},
      {"true", plain<[](V& v) { return v.is_bool() && v.as_bool(); }>},
      {"false", plain<[](V& v) { return v.is_bool() && !v.as_bool(); }>},
      {"integer", plain<[](V& v) { return v.is_int(); }>},
      {"float", plain<[](V& v) { return v.is_float(); }>},
      {"number", plain<[](V& v) { return v.is_number(); }>},
      {"string", plain<[](V& v) { return v.is_string(); }>},
      {"mapping", plain<[](V& v) { return v.is_dict(); }>},
      {"callable", plain<[](V& v) { return v.is_callable() || v.is_undefined(); }>},
      // Undefined values have a length, 0, and an element method, which throws.
      {"sequence", plain<[](V& v) {
         return v.is_string() || (v.is_list() && v.as_list().has_elements()) || v.is_dict() ||
                v.is_undefined();
       }>},
      {"iterable",
       plain<[](V& v) { return v.is_string() || v.is_list() || v.is_dict() || v.is_undefined(); }>},
      {"escaped", plain<[](V& v) { return v.is_safe(); }>},
      {"lower", plain<[](V& v) { return all_cased(v, false); }>},
      {"upper", plain<[](V& v) { return all_cased(v, true); }>},
      {"even", plain<[](V& v) { return leaves(v, Value(2), 0); }>},
      {"odd", plain<[](V& v) { return leaves(v, Value(2), 1); }>},
      {"divisibleby", [](I&, V& v, A& a) { return leaves(v, other(a), 0); }},
      {"in", [](I&, V& v, A& a) { return contains(other(a), v); }},
      {"sameas",
       [](I&, V& v, A& a) {
         const Value& w = other(a);
         return !v.is_undefined() && v.type_name() == w.type_name() && equal(v, w);
       }},
      {"filter", plain<[](V& v) {
         return hashable(v).is_string() && find_filter(v.text().view()) != nullptr;
       }>},
      {"test", plain<[](V& v) {
         return hashable(v).is_string() && find(tests(), v.text().view()) != nullptr;
       }>},
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
  return all;
}

}  // namespace coppice::chat
