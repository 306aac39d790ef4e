// One exception type for everything a caller may want to show to a person.
#pragma once

#include <stdexcept>
#include <string>

#include "base/api.h"

namespace coppice {

enum class ErrorKind {
  usage,    ///< the request was wrong: an option, a prompt, a combination (exit code 2)
  failure,  ///< the request was right and could not be carried out (exit code 1)
};

/// what() is one line: what went wrong, where, and the remedy; what a terminal must not be sent is
/// escaped.
class COPPICE_API Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message);
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace coppice
