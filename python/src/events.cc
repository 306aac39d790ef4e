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

bool Events::ready() const { return !events_.empty() || open_ == 0 || closed_; }

void Events::tell() {
  changed_.notify_all();
  if (waker_ != nullptr && ready()) std::exchange(waker_, {})->ring(key_);
}

void Events::put(Event event) {
  const std::lock_guard lock(mutex_);
  if (event.is_end && open_ > 0) --open_;
  if (!closed_ && (event.is_end || !skips_pieces_)) events_.push_back(std::move(event));
  tell();
}

void Events::end() {
  const std::lock_guard lock(mutex_);
  open_ = 0;
  tell();
}

Events::Found Events::take(Event& event, std::int32_t milliseconds) {
  std::unique_lock lock(mutex_);
  const auto is_ready = [&] { return ready(); };
  if (milliseconds < 0) {
    changed_.wait(lock, is_ready);
  } else if (!changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), is_ready)) {
    return Found::nothing;
  }
  if (events_.empty()) return Found::end;
  event = std::move(events_.front());
  events_.pop_front();
  return Found::event;
}

bool Events::watch(std::shared_ptr<Waker> waker, std::uint64_t key) {
  const std::lock_guard lock(mutex_);
  if (ready()) return false;
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
  tell();
}

}  // namespace coppice_python
