// Requests under way.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine_owner.h"
#include "events.h"
#include "options.h"

namespace coppice_python {

using Requests = std::vector<std::unique_ptr<RequestSettings>>;

/// Freed while Python's lock is held, after the end.
class Batch {
 public:
  explicit Batch(Requests requests);
  Batch(const Batch&) = delete;
  virtual ~Batch() = default;

  /// Begins to write. Raises what is wrong with a request.
  virtual void start(coppice_engine* engine) = 0;
  /// Asks all texts to end, and does not wait.
  virtual void stop() = 0;
  /// Whether no callback runs any more.
  virtual bool ended() const = 0;
  /// Waits for the end of all requests, without Python's lock.
  void wait() { events_.wait_for_end(); }

  Events& events() { return events_; }
  /// What the request of an end came to.
  virtual nb::dict outcome_of(std::size_t request) = 0;
  /// The event taken last is dealt with. False: its text ends, if it waits for an answer.
  virtual void answer(bool /*go_on*/) {}
  /// Raises what failed as a whole.
  virtual void check() const {}
  bool uses_sequences() const;

 protected:
  struct Listener {
    Batch* batch;
    std::size_t request;
  };
  nb::dict dict_of_outcome(std::size_t request, const coppice_outcome& outcome) const;

  Requests requests_;
  std::vector<Listener> listeners_;
  Events events_;
};

/// Written by the engine's own thread, which does not wait for who reads.
class SubmittedBatch final : public Batch {
 public:
  using Batch::Batch;
  ~SubmittedBatch() override;
  void start(coppice_engine* engine) override;
  void stop() override;
  bool ended() const override;
  nb::dict outcome_of(std::size_t request) override;

 private:
  static int on_piece(void* listener, const coppice_piece* piece);
  static void on_end(void* listener, const coppice_outcome* outcome);

  std::vector<std::unique_ptr<coppice_submission, Free<coppice_submission_free>>> submissions_;
};

/// Written by a thread of its own, which waits for an answer to each piece, so that a text ends
/// with the piece that its callback refused. The engine's own thread must not wait.
class AnsweredBatch final : public Batch {
 public:
  explicit AnsweredBatch(Requests requests);
  ~AnsweredBatch() override;
  void start(coppice_engine* engine) override;
  void stop() override;
  bool ended() const override;
  nb::dict outcome_of(std::size_t request) override;
  void answer(bool go_on) override;
  void check() const override;

 private:
  static int on_piece(void* listener, const coppice_piece* piece);
  static void on_outcome(void* batch, size_t index, const coppice_outcome* outcome);
  void write(coppice_engine* engine);
  bool ask(std::size_t request, const coppice_piece& piece);

  StopHandle stop_;
  std::mutex mutex_;
  std::condition_variable answered_;
  bool awaited_ = false;  ///< the thread waits for an answer
  bool go_on_ = true;     ///< the answer
  bool stopped_ = false;
  std::vector<nb::dict> outcomes_;  ///< by request; Python's lock guards them
  std::atomic<bool> ended_ = false;
  coppice_status status_ = COPPICE_OK;
  std::string message_;
  std::thread thread_;
};

}  // namespace coppice_python
