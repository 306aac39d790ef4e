// The CPU device's threads.
//
// A product of a small model takes 10 microseconds, so a team must form in less than one and
// must not wait for a member that the system has not scheduled: with a fork and a join of all
// threads (OpenMP), one busy processor turns every operation into a scheduling interval, 12 ms
// where measured. Here items are claimed one at a time, workers that come too late find the
// job closed, and the caller can do everything alone.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <thread>
#include <vector>

namespace coppice::cpu {

/// Processors that this process may run on.
int usable_threads();

/// The share [begin, end) of `items` that part `index` of `parts` holds.
struct Share {
  std::int64_t begin, end;
};
inline Share share_of(std::int64_t items, std::int64_t index, std::int64_t parts) {
  return {items * index / parts, items * (index + 1) / parts};
}

/// run() is for one thread at a time, the caller of the device.
class Workers {
 public:
  /// `threads`, the caller included.
  explicit Workers(int threads);
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  int threads() const { return static_cast<int>(helpers_.size()) + 1; }

  /// Threads that `work` units are worth when each should get at least `grain` of them.
  int worth(std::int64_t work, std::int64_t grain) const {
    return static_cast<int>(std::clamp<std::int64_t>(work / grain, 1, threads()));
  }

  /// Calls body(item, worker) once for every item in [0, items), on at most `team` threads,
  /// worker in [0, threads()) being different for calls at the same time. Returns when all are
  /// done. body must not throw.
  template <typename Body>
  void run(std::int64_t items, int team, const Body& body) {
    if (team <= 1 || helpers_.empty() || items <= 1) {
      for (std::int64_t i = 0; i < items; ++i) body(i, 0);
      return;
    }
    start(
        items, team,
        [](const void* context, std::int64_t item, int worker) {
          (*static_cast<const Body*>(context))(item, worker);
        },
        &body);
  }

  /// body(begin, end) over parts of [0, rows), each thread worth `grain` elements.
  template <typename Body>
  void run_rows(std::int64_t rows, std::int64_t row_elements, std::int64_t grain,
                const Body& body) {
    const int team = worth(rows * row_elements, grain);
    const std::int64_t parts = std::min<std::int64_t>(rows, team);
    run(parts, team, [&](std::int64_t item, int) {
      const Share share = share_of(rows, item, parts);
      body(share.begin, share.end);
    });
  }

 private:
  using Call = void (*)(const void* context, std::int64_t item, int worker);

  void start(std::int64_t items, int team, Call call, const void* context);
  void work(int worker);
  void serve(int worker);
  void stop();

  // The job; written only while the gate is shut and nobody is inside.
  Call call_ = nullptr;
  const void* context_ = nullptr;
  std::int64_t items_ = 0;
  alignas(64) std::atomic<std::int64_t> claimed_{0};  ///< items taken, from either end
  std::atomic<std::int64_t> back_{0};                 ///< of these by helpers
  std::int64_t front_ = 0;                            ///< and by the caller
  /// Open flag, most helpers to let in, helpers inside: see workers.cc.
  alignas(64) std::atomic<std::uint32_t> gate_{0};
  /// Number of jobs so far; helpers wait for it to change.
  alignas(64) std::atomic<std::uint32_t> jobs_{0};
  std::atomic<bool> stop_{false};
  int spins_ = 0;
  std::vector<std::thread> helpers_;
};

}  // namespace coppice::cpu
