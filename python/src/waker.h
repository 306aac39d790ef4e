// Wakes an event loop of asyncio from threads that do not hold Python's lock.
#pragma once

#include <cstdint>
#include <mutex>
#include <vector>

namespace coppice_python {

/// A file descriptor that is readable when keys were rung. One serves all streams of a loop.
class Waker {
 public:
  /// Throws std::system_error if the process has no descriptor left.
  Waker();
  Waker(const Waker&) = delete;
  ~Waker();

  int fileno() const { return descriptor_; }
  void ring(std::uint64_t key);
  /// Returns the keys rung since the last call, and makes the descriptor unreadable.
  std::vector<std::uint64_t> drain();

 private:
  const int descriptor_;
  std::mutex mutex_;
  std::vector<std::uint64_t> keys_;
};

}  // namespace coppice_python
