// Making and throwing Error (base/error_type.h), and quoting what its messages name.
#pragma once

#include <sstream>
#include <string>
#include <string_view>

#include "base/error_type.h"

namespace coppice {

/// Text from outside (names in files, paths, options) for one line of a terminal. What would break
/// the line, act on the terminal, turn or hide the direction of text, or is not UTF-8 is escaped:
/// \n, \t, \x1b, \u009b, \u202e, \xff. Everything else stands.
std::string printable(std::string_view text);

/// Streams all arguments into one string.
template <typename... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  out.exceptions(std::ios::badbit);  // else a text for which memory runs out is cut short
  (out << ... << args);
  return out.str();
}

/// What a longer context, or more memory for KV, would spare.
class RoomError final : public Error {
 public:
  using Error::Error;
};

[[noreturn]] void throw_usage(const std::string& message);
[[noreturn]] void throw_failure(const std::string& message);

/// printable() text in quotes, for use inside a message; long text is shortened in the middle.
std::string quote(std::string_view text);

}  // namespace coppice
