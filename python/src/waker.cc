#include "waker.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <system_error>
#include <utility>

namespace coppice_python {

Waker::Waker() : descriptor_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (descriptor_ < 0) throw std::system_error(errno, std::generic_category(), "eventfd");
}

Waker::~Waker() { close(descriptor_); }

void Waker::ring(std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  keys_.push_back(key);
  if (keys_.size() == 1) eventfd_write(descriptor_, 1);
}

std::vector<std::uint64_t> Waker::drain() {
  const std::lock_guard lock(mutex_);
  eventfd_t count;
  eventfd_read(descriptor_, &count);
  return std::exchange(keys_, {});
}

}  // namespace coppice_python
