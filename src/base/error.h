// One exception type for everything a caller may want to show to a person.
#pragma once

#include <sstream>
#include <stdexcept>
#include <string>

namespace coppice {

enum class ErrorKind {
  usage,    ///< the request was wrong: an option, a prompt, a combination (exit code 2)
  failure,  ///< the request was right and could not be carried out (exit code 1)
};

/// what() is one line: what went wrong, where, and the remedy.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
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

/// Quotes text that came from outside for use inside a one-line message: control
/// characters and invalid UTF-8 are escaped, long text is shortened in the middle.
std::string quote(const std::string& text);

}  // namespace coppice
