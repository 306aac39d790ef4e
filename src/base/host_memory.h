// The failure of a call for which the host had too little memory.
#pragma once

#include <exception>
#include <new>

#include "base/error.h"

namespace coppice {

/// The host's memory ran out: the same call may succeed when there is more.
class HostMemoryError final : public Error {
 public:
  explicit HostMemoryError(const std::string& message) : Error(ErrorKind::failure, message) {}
};

/// Whether a call failed for want of host memory.
inline bool lacked_host_memory(const std::exception_ptr& failure) {
  if (failure == nullptr) return false;
  try {
    std::rethrow_exception(failure);
  } catch (const HostMemoryError&) {
    return true;
  } catch (const std::bad_alloc&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace coppice
