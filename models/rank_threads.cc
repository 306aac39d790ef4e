#include "models/rank_threads.h"

#include "base/start_thread.h"

namespace coppice {

// The destructor ends those that were started, should one not start.
RankThreads::RankThreads(std::span<Device* const> devices) : RankThreads() {
  threads_.reserve(devices.size());
  for (std::size_t rank = 1; rank < devices.size(); ++rank) {
    threads_.push_back(start_thread(
        [this, rank, device = devices[rank]] { serve(static_cast<int>(rank), *device); }));
  }
}

RankThreads::~RankThreads() {
  body_ = nullptr;
  jobs_.fetch_add(1);
  jobs_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

void RankThreads::run(const std::function<void(int)>& body) {
  body_ = &body;
  running_ = static_cast<std::int32_t>(threads_.size());
  jobs_.fetch_add(1);
  jobs_.notify_all();
  body(0);
  for (std::int32_t left = running_; left > 0; left = running_) running_.wait(left);
}

void RankThreads::serve(int rank, const Device& device) {
  const DeviceScope scope(device);
  for (std::uint32_t done = 0;; ++done) {
    jobs_.wait(done);
    if (body_ == nullptr) return;
    (*body_)(rank);
    if (running_.fetch_sub(1) == 1) running_.notify_one();
  }
}

}  // namespace coppice
