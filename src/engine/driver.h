// The thread that writes what Engine::submit() began.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <thread>

#include "engine/open_request.h"
#include "engine/scheduler.h"

namespace coppice {

/// How submissions reach the driver. They may outlive it.
class DriverBell {
 public:
  /// Has the driver look at its submissions, after the step at hand.
  void ring();
  /// Returns whether this is the driver's thread, which must not wait for itself.
  bool on_its_thread() const { return std::this_thread::get_id() == thread_.load(); }

 private:
  friend class Driver;
  std::mutex mutex_;
  std::condition_variable rung_condition_;
  bool rung_ = false;
  Call* call_ = nullptr;  ///< of the driver's thread; null before it runs, and once it has ended
  std::atomic<std::thread::id> thread_;
};

struct __attribute__((visibility("hidden"))) Submission::Impl {
  Request request;
  std::function<void(Outcome&)> finished;
  std::shared_ptr<Sequence::Impl> sequence;  ///< of the request's; null: each sample its own
  std::shared_ptr<DriverBell> bell;
  std::stop_source stop;

  // The driver's:
  Outcome outcome;  ///< anybody's once `done`
  std::int32_t opened = 0, ended = 0;

  std::mutex mutex;  ///< of what follows
  std::condition_variable done_condition;
  bool done = false, taken = false;
};

/// Owns a call, and its thread. Sequences are opened in the order in which they were submitted, as
/// many as may run or wait; the scheduler admits those first that share most.
class Driver {
 public:
  explicit Driver(Engine::Impl& engine);
  /// Ends everything as cancelled.
  ~Driver();
  Driver(const Driver&) = delete;
  Driver& operator=(const Driver&) = delete;

  std::shared_ptr<DriverBell> bell() const { return bell_; }
  /// From any thread.
  void submit(std::shared_ptr<Submission::Impl> submission);
  /// Samples that are not open yet.
  std::int32_t unopened() const { return unopened_; }

 private:
  using Shared = std::shared_ptr<Submission::Impl>;
  struct InFlight {
    Shared submission;
    std::int32_t sample;
    std::unique_ptr<OpenSequence> open;
  };
  using Place = std::list<InFlight>::iterator;

  void run();
  bool write();
  void take_new();
  void cancel_asked();
  void cancel(Submission::Impl& submission);
  void open_more();
  bool open(const Shared& submission, std::int32_t sample);
  void finish(Place one);
  void sample_ended(Submission::Impl& submission);
  void fail_all();

  Engine::Impl& engine_;
  const std::shared_ptr<DriverBell> bell_;
  const std::size_t most_;
  std::atomic<std::int32_t> unopened_ = 0;
  std::mutex mutex_;       ///< of what follows
  std::list<Shared> new_;  ///< submitted, and not seen by the thread
  bool quits_ = false;
  // The thread's:
  std::optional<Call> call_;  ///< ends before its sequences
  std::list<Shared> waiting_;
  std::list<InFlight> in_flight_;
  std::thread thread_;
};

}  // namespace coppice
