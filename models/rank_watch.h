// Notices that a pass of a split model has no end.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <thread>

namespace coppice {

/// A GPU waits for others' numbers without end if one of them hangs. This looks, on a thread of its
/// own, whether the pass that was begun last has ended.
class RankWatch {
 public:
  /// Calls give_up() once a pass has taken longer than `patience`, and then no more. `has_finished`
  /// tells of what a pass has left in queues after it returned to the host.
  RankWatch(std::chrono::milliseconds patience, std::function<bool()> has_finished,
            std::function<void()> give_up);
  ~RankWatch();
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  /// What give_up() has to tell.
  static std::string line(std::chrono::milliseconds patience);

  /// Around the host's part of a pass.
  void begin();
  void end();

 private:
  void watch();

  const std::chrono::milliseconds patience_;
  const std::function<bool()> has_finished_;
  const std::function<void()> give_up_;
  std::mutex mutex_;
  std::condition_variable stopped_;
  std::uint64_t passes_ = 0;
  bool on_host_ = false, stops_ = false;
  std::thread thread_;
};

}  // namespace coppice
