// Requests under way, as Python reads them.
#pragma once

#include <cstdint>
#include <memory>

#include "batch.h"

namespace coppice_python {

/// Python's signals are handled by its main thread alone, and only where that runs Python. So other
/// threads write, and the caller waits here, where Ctrl-C is heard.
class Run {
 public:
  /// `answered`: each piece waits for answer(), as it does for a callback.
  Run(EngineHandle engine, Requests requests, bool answered);
  Run(const Run&) = delete;
  /// Asks all texts to end. Waits for that only where a sequence is used again.
  ~Run();

  /// The next event, or None after the last one: a piece, (request, sample, text, tokens,
  /// logprobs), or the end of a request, (request, outcome). Waits for it without Python's lock.
  /// Raises what a signal raises, and what failed as a whole.
  nb::object next();
  /// The same without waiting: False if there is no event yet.
  nb::object poll();
  /// Has the waker ring `key` when poll() has something. False: it has already.
  bool watch(std::shared_ptr<Waker> waker, std::uint64_t key);
  void answer(bool go_on) { batch_->answer(go_on); }
  void skip_pieces() { batch_->events().skip_pieces(); }
  /// Asks all texts to end; their last events follow.
  void stop();
  /// Ends all texts, drops their events, and waits for the end.
  void close();

 private:
  nb::object read(Events::Found found, const Event& event);

  EngineHandle engine_;
  std::shared_ptr<Batch> batch_;
};

/// Remembers which thread hears signals. Called once.
void note_main_thread();

}  // namespace coppice_python
