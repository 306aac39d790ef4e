#include "events.h"

#include <chrono>
#include <utility>

namespace coppice_python {

Event event_of(std::size_t request, const coppice_piece& piece) {
  return {.request = request,
          .sample = piece.sample,
          .text = std::string(piece.text, piece.text_bytes),
          .tokens = {piece.tokens, piece.tokens + piece.token_count},
          .logprobs = copy_of(piece.logprobs, piece.token_count)};
}

void Events::put(Event event) {
  const std::lock_guard lock(mutex_);
  if (event.is_end && open_ > 0) --open_;
  if (!closed_ && (event.is_end || !skips_pieces_)) events_.push_back(std::move(event));
  changed_.notify_all();
  if (waker_ != nullptr && (!events_.empty() || open_ == 0)) std::exchange(waker_, {})->ring(key_);
}

void Events::end() {
  const std::lock_guard lock(mutex_);
  open_ = 0;
  changed_.notify_all();
  if (waker_ != nullptr) std::exchange(waker_, {})->ring(key_);
}

Events::Found Events::take(Event& event, std::int32_t milliseconds) {
  std::unique_lock lock(mutex_);
  const auto ready = [&] { return !events_.empty() || open_ == 0 || closed_; };
  if (milliseconds < 0) {
    changed_.wait(lock, ready);
  } else if (!changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), ready)) {
    return Found::nothing;
  }
  if (events_.empty()) return Found::end;
  event = std::move(events_.front());
  events_.pop_front();
  return Found::event;
}

bool Events::watch(std::shared_ptr<Waker> waker, std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  if (!events_.empty() || open_ == 0 || closed_) return false;
  waker_ = std::move(waker);
  key_ = key;
  return true;
}

void Events::wait_for_end() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return open_ == 0; });
}

void Events::skip_pieces() {
  const std::lock_guard lock(mutex_);
  skips_pieces_ = true;
  std::erase_if(events_, [](const Event& event) { return !event.is_end; });
}

void Events::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
  events_.clear();
  changed_.notify_all();
  if (waker_ != nullptr) std::exchange(waker_, {})->ring(key_);
}

}  // namespace coppice_python
