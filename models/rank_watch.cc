#include "models/rank_watch.h"

#include <algorithm>
#include <utility>

#include "base/error.h"
#include "base/start_thread.h"
#include "kernels/rank_failure.h"

namespace coppice {

RankWatch::RankWatch(std::chrono::milliseconds patience, std::function<bool()> has_finished,
                     std::function<void()> give_up)
    : patience_(patience),
      has_finished_(std::move(has_finished)),
      give_up_(std::move(give_up)),
      thread_(start_thread([this] { watch(); })) {}

RankWatch::~RankWatch() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  stopped_.notify_all();
  thread_.join();
}

std::string RankWatch::line(std::chrono::milliseconds patience) {
  return cat(rank_subject, "a pass did not end within ", seconds_of(patience),
             " s; see which rank hangs, or give passes more time (rank-timeout)");
}

void RankWatch::begin() {
  const std::lock_guard lock(mutex_);
  ++passes_;
  on_host_ = true;
}

void RankWatch::end() {
  const std::lock_guard lock(mutex_);
  on_host_ = false;
}

void RankWatch::watch() {
  using std::chrono::steady_clock;
  const auto between = std::clamp<std::chrono::milliseconds>(
      patience_ / 8, std::chrono::milliseconds(1), std::chrono::seconds(1));
  std::uint64_t seen = 0;
  steady_clock::time_point since = steady_clock::now();
  std::unique_lock lock(mutex_);
  while (!stopped_.wait_for(lock, between, [&] { return stops_; })) {
    const auto now = steady_clock::now();
    // Whoever begins a pass has had the results of former ones.
    if (seen != passes_ || (!on_host_ && has_finished_())) {
      seen = passes_;
      since = now;
    } else if (now - since > patience_) {
      lock.unlock();
      return give_up_();
    }
  }
}

}  // namespace coppice
