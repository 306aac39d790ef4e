#include "c/status.h"

#include <new>

namespace {

// Of fixed size, so that running out of memory can be told, too.
thread_local char last_message[4096];

}  // namespace

namespace coppice::c {

Failure failure_of(const std::exception_ptr& error) noexcept {
  if (error == nullptr) return {};
  try {
    try {
      std::rethrow_exception(error);
    } catch (const Error& known) {
      return {known.kind() == ErrorKind::usage ? COPPICE_USAGE : COPPICE_FAILURE, known.what()};
    } catch (const std::bad_alloc&) {
      return {COPPICE_FAILURE, "memory: there was not enough"};  // short: nothing is allocated
    } catch (const std::exception& other) {
      return {COPPICE_FAILURE, other.what()};
    } catch (...) {
      return {COPPICE_FAILURE, "an unknown failure"};
    }
  } catch (...) {
    return {COPPICE_FAILURE, {}};  // no memory for the message
  }
}

coppice_status fail(const Failure& failure) noexcept {
  const std::size_t length = failure.message.copy(last_message, sizeof last_message - 1);
  last_message[length] = '\0';
  return failure.status;
}

}  // namespace coppice::c

const char* coppice_error_message(void) { return last_message; }
