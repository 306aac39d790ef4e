// One exception type for everything a caller may want to show to a person.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>
#include <string_view>

namespace coppice {

enum class ErrorKind {
  usage,    ///< the request was wrong: an option, a prompt, a combination (exit code 2)
  failure,  ///< the request was right and could not be carried out (exit code 1)
};

/// Text from outside (names in files, paths, options) for one line of a terminal. What would break
/// the line, act on the terminal, turn or hide the direction of text, or is not UTF-8 is escaped:
/// \n, \t, \x1b, \u009b, \u202e, \xff. Everything else stands.
std::string printable(std::string_view text);

/// what() is one line: what went wrong, where, and the remedy; printable() whatever it holds.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message)
      : std::runtime_error(printable(message)), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

/// Streams all arguments into one string.
template <typename... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

[[noreturn]] void throw_usage(const std::string& message);
[[noreturn]] void throw_failure(const std::string& message);

/// printable() text in quotes, for use inside a message; long text is shortened in the middle.
std::string quote(std::string_view text);

}  // namespace coppice
