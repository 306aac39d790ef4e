// What the engine's threads tell of requests, for Python to read.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "results.h"
#include "waker.h"

namespace coppice_python {

/// A piece of a text, or the end of a request.
struct Event {
  std::size_t request = 0;
  bool is_end = false;
  std::int32_t sample = 0;
  std::string text;
  std::vector<std::int32_t> tokens;
  Logprobs logprobs;
};
Event event_of(std::size_t request, const coppice_piece& piece);

/// Filled by threads that do not hold Python's lock, and read by one that may.
class Events {
 public:
  explicit Events(std::size_t requests) : open_(requests) {}

  void put(Event event);
  /// Nothing more comes.
  void end();

  enum class Found { event, nothing, end };
  /// Waits for an event, or for the end, at most `milliseconds`; below 0: without limit.
  Found take(Event& event, std::int32_t milliseconds);
  /// Has the next event ring the waker. False: there is one already, or the end.
  bool watch(std::shared_ptr<Waker> waker, std::uint64_t key);
  void wait_for_end();

  /// Pieces are not kept from now on, and those that nobody read go.
  void skip_pieces();
  bool skips_pieces() const { return skips_pieces_; }
  /// The same of all events.
  void close();
  bool closed() const { return closed_; }

 private:
  // Under the lock.
  bool ready() const;  ///< take() need not wait
  void tell();         ///< who waits or watches

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  std::size_t open_;  ///< requests whose end is still to come
  std::atomic<bool> skips_pieces_ = false, closed_ = false;
  std::shared_ptr<Waker> waker_;
  std::uint64_t key_ = 0;
};

}  // namespace coppice_python
