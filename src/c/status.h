// How functions of coppice_c.h fail: what they throw becomes a status and a line.
#pragma once

#include <exception>
#include <string>
#include <string_view>
#include <utility>

#include "base/error.h"
#include "coppice_c.h"

namespace coppice::c {

struct Failure {
  coppice_status status = COPPICE_OK;
  std::string message;
};

/// What `error` is to a caller in C; COPPICE_OK for nullptr.
Failure failure_of(const std::exception_ptr& error) noexcept;

/// Keeps the line for coppice_error_message() of this thread, and returns the status.
coppice_status fail(const Failure& failure) noexcept;

/// Runs a function's body, from which no exception escapes.
template <typename Body>
coppice_status guarded(Body&& body) noexcept {
  try {
    std::forward<Body>(body)();
    return COPPICE_OK;
  } catch (...) {
    return fail(failure_of(std::current_exception()));
  }
}

/// Throws Error(usage) for a null pointer that a function needs.
inline void need(const void* pointer, const char* name) {
  if (pointer == nullptr) throw_usage(cat(name, ": it is NULL; give one"));
}

/// "" for NULL.
inline std::string_view text_of(const char* text) {
  return text == nullptr ? std::string_view() : std::string_view(text);
}

}  // namespace coppice::c
