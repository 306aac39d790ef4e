// What is wrong with a request, as the APIs say it.
#pragma once

#include <stdexcept>
#include <string>
#include <utility>

namespace coppice::server {

/// Ends a request. `param` is the field that is to blame, `code` a word for programs; both may be
/// empty.
class ApiError : public std::runtime_error {
 public:
  ApiError(int status, const std::string& message, std::string param = {}, std::string code = {})
      : std::runtime_error(message),
        status_(status),
        param_(std::move(param)),
        code_(std::move(code)) {}
  int status() const { return status_; }
  const std::string& param() const { return param_; }
  const std::string& code() const { return code_; }

 private:
  int status_;
  std::string param_, code_;
};

/// A field's value that is not taken.
inline ApiError bad_field(const std::string& field, const std::string& message) {
  return {400, field + ": " + message, field, "invalid_value"};
}

}  // namespace coppice::server
