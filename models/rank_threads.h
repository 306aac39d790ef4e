// The threads that run the ranks of a split model.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <span>
#include <thread>
#include <vector>

#include "kernels/device.h"

namespace coppice {

/// Rank 0 runs on the caller's thread, each other one on a thread of its own, always the same one,
/// where its device is current.
class RankThreads {
 public:
  /// Throws Error(failure) where the system lets this process start no more threads.
  explicit RankThreads(std::span<Device* const> devices);
  ~RankThreads();
  RankThreads(const RankThreads&) = delete;
  RankThreads& operator=(const RankThreads&) = delete;

  /// Calls body(rank) for every rank, at the same time, and returns when all have returned. `body`
  /// must not throw. Not for several threads at a time.
  void run(const std::function<void(int rank)>& body);

 private:
  RankThreads() = default;
  void serve(int rank, const Device& device);

  const std::function<void(int)>* body_ = nullptr;  ///< of the job, null: the end
  std::atomic<std::uint32_t> jobs_{0};
  std::atomic<std::int32_t> running_{0};  ///< ranks but the first that are at it
  std::vector<std::thread> threads_;
};

}  // namespace coppice
