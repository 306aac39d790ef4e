// Walks a template's syntax tree.
#pragma once

#include <ctime>
#include <deque>
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

/// Charges a search among so many names.
void spend_search(std::size_t names);
/// Charges a look through the texts among a call's words.
void look_at_all(const Value& value, const Arguments& given);

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

/// Items of a list, characters of a string, keys of a dict; none of an undefined value.
std::vector<Value> items_of(const Value& value);
Value binary(std::string_view operation, const Value& a, const Value& b);
bool contains(const Value& container, const Value& value);
/// Where `what` is in `text`, from `from` on or before `end`; npos: nowhere. As quick as the text
/// is long, or charged for.
std::size_t find_text(std::string_view text, std::string_view what, std::size_t from = 0);
std::size_t find_last_text(std::string_view text, std::string_view what,
                           std::size_t end = std::string_view::npos);

/// Tables of names; a null pointer or an undefined value says that there is no such name.
using Filter = Value (*)(Interpreter&, const Value& value, const Arguments& arguments);
Filter find_text_filter(std::string_view name);
Filter find_sequence_filter(std::string_view name);
bool is_test(std::string_view name);
bool run_test(std::string_view name, const Value& value, const Arguments& arguments);
Value find_function(std::string_view name);
/// A method of `value`, bound to it; an undefined value if it would change `value`.
Value find_method(const Value& value, std::string_view name);
Value string_method(const Text& self, std::string_view name, const Arguments& arguments);
bool is_string_method(std::string_view name);

/// All names in these tables: for tests that are to forget none.
std::vector<std::string_view> filter_names();
std::vector<std::string_view> sequence_filter_names();  ///< a part of them
std::vector<std::string_view> test_names();
std::vector<std::string_view> function_names();
std::vector<std::string_view> string_method_names();

}  // namespace coppice::chat
