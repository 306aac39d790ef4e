// Calls in Python's syntax: [name(argument=1), other(argument="text")].
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace coppice::server {

struct PythonicCall {
  std::string name;
  std::string arguments;  ///< a JSON object
};

/// Finds where a list of Python ends, in a text that arrives in pieces.
class PythonicScanner {
 public:
  /// Takes one byte, the first of which opens the list. False where the text cannot become a list
  /// of calls.
  bool feed(char c);
  bool done() const { return begun_ && depth_ == 0; }
  /// The first call's name, once it is known.
  const std::string& name() const { return name_; }
  bool has_name() const { return has_name_; }

 private:
  int depth_ = 0;
  char quote_ = 0;
  bool begun_ = false, is_escaped_ = false, has_name_ = false;
  std::string name_;
};

/// The calls of a whole list; nothing if it is no list of calls with named literals.
std::optional<std::vector<PythonicCall>> parse_pythonic(std::string_view list);

/// JSON of a literal in Python's syntax; nothing if it is none.
std::optional<std::string> parse_python_value(std::string_view literal);

}  // namespace coppice::server
