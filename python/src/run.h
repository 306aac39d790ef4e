// Requests under way on a thread of their own, whose events another thread reads.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "options.h"
#include "results.h"

namespace coppice_python {

using Requests = std::vector<std::unique_ptr<RequestSettings>>;

/// Python's signals are handled by its main thread alone, and only where that runs Python. So the
/// engine works on another thread, and the caller waits here, where Ctrl-C is heard.
class Run {
 public:
  /// `answered`: each piece waits for answer(), as it does for a callback.
  Run(EngineHandle engine, Requests requests, bool answered);
  Run(const Run&) = delete;
  ~Run() { close(); }

  /// The next event, or None behind the last one: a piece, (request, sample, text, tokens,
  /// logprobs), or the end of a request, (request, outcome). Waits for it without Python's lock.
  /// Raises what a signal raises, and what failed as a whole.
  nb::object next();
  /// The piece that next() returned last is dealt with. False: its text ends. Nothing but with
  /// `answered`.
  void answer(bool go_on);
  /// Asks all texts to end; their last events follow.
  void stop();
  /// Ends all texts, drops their events, and waits for the thread.
  void close();

 private:
  struct Event {
    std::size_t request = 0;
    std::int32_t sample = 0;
    std::string text;
    std::vector<std::int32_t> tokens;
    Logprobs logprobs;
    const coppice_outcome* outcome = nullptr;  ///< of an end
  };
  /// The outcome is there until this has ended.
  struct Reading {
    explicit Reading(Run& of) : run(of) {}
    ~Reading() { run.reply(true); }
    Run& run;
  };
  struct Listener {
    Run* run;
    std::size_t request;
  };

  static int on_piece(void* listener, const coppice_piece* piece);
  static void on_outcome(void* run, size_t index, const coppice_outcome* outcome);
  void write();
  bool put(Event event, bool answered);
  void reply(bool go_on);

  const EngineHandle engine_;
  const Requests requests_;
  const bool answered_;
  std::vector<Listener> listeners_;
  StopHandle stop_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Event> events_;
  bool awaited_ = false;  ///< the thread waits for an answer
  bool read_ = false;     ///< an outcome is being read
  bool go_on_ = true;     ///< the answer
  bool ended_ = false;    ///< the thread has nothing more to say
  bool closed_ = false;
  coppice_status status_ = COPPICE_OK;
  std::string message_;
  std::mutex closing_;  ///< several threads may close
  std::thread thread_;
};

}  // namespace coppice_python
