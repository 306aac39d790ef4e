// Walks a template's syntax tree.
#pragma once

#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "chat/syntax.h"
#include "chat/value.h"

namespace coppice::chat {

/// Names of one block, and the block around it.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<std::string, Value>> names;
  const Value* find(std::string_view name) const;
  void set(const std::string& name, Value value);
};

class Interpreter {
 public:
  /// `context`: the names that the template begins with; `now`: for strftime_now.
  Interpreter(const Dict& context, std::time_t now);

  Text render(const Block& block);
  int line() const { return line_; }
  std::time_t now() const { return now_; }

  // For filters, tests and methods.
  Value call(const Value& callee, const Arguments& arguments);
  Value filter(std::string_view name, const Value& value, const Arguments& arguments);
  bool test(std::string_view name, const Value& value, const Arguments& arguments);
  Value attribute(const Value& value, std::string_view name);
  Value item(const Value& value, const Value& key);
  Namespace* new_namespace();

 private:
  enum class Flow { normal, broke, continued };
  class Level;

  // Statements (interpreter.cc).
  Flow execute(const Block& block, Text& out);
  Flow execute(const Statement& statement, Text& out);
  Flow loop(const Statement& statement, const Value& items, int depth, Text& out);
  /// The body's text. If it left a loop, the text is lost, as the statement around it is.
  Flow capture(const Block& body, Value& text);
  void assign(const Expression& target, const Value& value);
  Value macro(const Macro& macro);
  Value call_macro(const Macro& macro, const std::shared_ptr<Scope>& closure,
                   const Arguments& given);
  void write(const Value& value, Text& out);

  // Expressions (expressions.cc).
  Value evaluate(const Expression& node);
  Value name(const Expression& node);
  Value slice(const Expression& node);
  Value comparison(const Expression& node);
  Arguments evaluate(const std::vector<Argument>& list);
  Value filtered(const Expression& node, const Value* block_text);

  std::shared_ptr<Scope> scope_;
  std::deque<Namespace> namespaces_;
  std::time_t now_;
  int line_ = 1;
  int depth_ = 0;
};

/// What an attribute that is not there evaluates to.
Value missing_attribute(const Value& owner, std::string_view name);
/// Items of a list, characters of a string, keys of a dict; none of an undefined value.
std::vector<Value> items_of(const Value& value);
Value binary(std::string_view operation, const Value& a, const Value& b);
bool contains(const Value& container, const Value& value);
/// Where `what` is in `text`, from `from` on or before `end`; npos: nowhere.
std::size_t find_text(std::string_view text, std::string_view what, std::size_t from = 0);
std::size_t find_last_text(std::string_view text, std::string_view what,
                           std::size_t end = std::string_view::npos);

/// All that templates can call, by name.
template <typename Callee>
using Table = std::map<std::string_view, Callee>;
using Filter = Value (*)(Interpreter&, const Value& value, const Arguments& arguments);
using Test = bool (*)(Interpreter&, const Value& value, const Arguments& arguments);
using Function = Value (*)(Interpreter&, const Arguments& arguments);
/// Several methods may share one function, which `name` tells what to do.
using Method = Value (*)(const Value& self, std::string_view name, const Arguments& arguments);
const Table<Filter>& text_filters();
const Table<Filter>& sequence_filters();
const Table<Test>& tests();
const Table<Function>& functions();
const Table<Method>& string_methods();
const Table<Method>& dict_methods();
const Table<Method>& list_methods();

/// Null if there is none of this name.
template <typename Callee>
Callee find(const Table<Callee>& table, std::string_view name) {
  const auto found = table.find(name);
  return found == table.end() ? nullptr : found->second;
}
Filter find_filter(std::string_view name);
/// A method of `value`, bound to it; none if it has no such method; an undefined value if that
/// would change `value`.
Value find_method(const Value& value, std::string_view name);
/// As self.name(arguments).
Value string_method(const Text& self, std::string_view name, const Arguments& arguments = {});

}  // namespace coppice::chat
