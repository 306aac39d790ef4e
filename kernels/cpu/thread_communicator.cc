#include "kernels/cpu/thread_communicator.h"

#include <algorithm>
#include <span>
#include <string>
#include <utility>

#include "kernels/cpu/workers.h"

namespace coppice::cpu {
namespace {

class ThreadCommunicator final : public Communicator {
 public:
  ThreadCommunicator(std::shared_ptr<RankMeeting> all, int rank)
      : all_(std::move(all)), rank_(rank) {}

  void sum(float* values, std::int64_t count) override {
    all_->shown(rank_) = values;
    all_->meet(rank_);
    // Each rank adds a share of the values, for everybody.
    const Share mine = share_of(count, rank_, all_->ranks());
    for (std::int64_t i = mine.begin; i < mine.end; ++i) {
      float total = all_->shown(0)[i];
      for (int rank = 1; rank < all_->ranks(); ++rank) total += all_->shown(rank)[i];
      for (int rank = 0; rank < all_->ranks(); ++rank) all_->shown(rank)[i] = total;
    }
    all_->meet(rank_);
  }

  void gather_columns(float* part, std::span<const std::int64_t> widths, std::int32_t rows, float*,
                      float* to) override {
    all_->shown(rank_) = part;
    all_->meet(rank_);
    if (rank_ == 0) {
      for (std::int64_t row = 0; row < rows; ++row) {
        for (int rank = 0; rank < all_->ranks(); ++rank) {
          const std::int64_t width = widths[static_cast<std::size_t>(rank)];
          to = std::copy_n(all_->shown(rank) + row * width, width, to);
        }
      }
    }
    all_->meet(rank_);  // before parts are written anew
  }

  void abort(const std::string& why) noexcept override { all_->abort(why); }

 private:
  const std::shared_ptr<RankMeeting> all_;
  const int rank_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_thread_communicators(
    int ranks, std::chrono::milliseconds patience) {
  const auto meeting = std::make_shared<RankMeeting>(ranks, patience);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(std::make_unique<ThreadCommunicator>(meeting, rank));
  }
  return all;
}

}  // namespace coppice::cpu
