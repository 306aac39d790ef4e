#include <algorithm>
#include <string>
#include <utility>

#include "base/error.h"
#include "kernels/cuda/card_communicator.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/put_columns.h"
#include "kernels/rank_meeting.h"

namespace coppice::cuda {
namespace {

constexpr int most_ranks = 8, threads = 256;

struct Parts {
  float* of[most_ranks];
};

__global__ void __launch_bounds__(threads)
    add_parts(const Parts parts, int ranks, std::int64_t begin, std::int64_t end) {
  const std::int64_t stride = std::int64_t{gridDim.x} * threads;
  for (std::int64_t i = begin + std::int64_t{blockIdx.x} * threads + threadIdx.x; i < end;
       i += stride) {
    float total = parts.of[0][i];
#pragma unroll
    for (int rank = 1; rank < most_ranks; ++rank) {
      if (rank < ranks) total += parts.of[rank][i];
    }
#pragma unroll
    for (int rank = 0; rank < most_ranks; ++rank) {
      if (rank < ranks) parts.of[rank][i] = total;
    }
  }
}

struct Group {
  Group(int ranks, std::chrono::milliseconds patience)
      : meeting(ranks, patience), come(static_cast<std::size_t>(ranks)) {}

  RankMeeting meeting;
  std::vector<Event> come;  ///< by rank: its stream has come to the meeting
};

class CardCommunicator final : public Communicator {
 public:
  CardCommunicator(std::shared_ptr<Group> group, int rank, cudaStream_t stream)
      : group_(std::move(group)), rank_(rank), stream_(stream) {}

  void sum(float* values, std::int64_t count) override {
    RankMeeting& all = group_->meeting;
    all.shown(rank_) = values;
    meet();
    // Each rank adds a share of the values, for everybody.
    const std::int64_t begin = count * rank_ / all.ranks(), end = count * (rank_ + 1) / all.ranks();
    if (begin < end) {
      Parts parts{};
      for (int rank = 0; rank < all.ranks(); ++rank) parts.of[rank] = all.shown(rank);
      const std::int64_t blocks =
          std::min<std::int64_t>((end - begin + threads - 1) / threads, 256);
      add_parts<<<static_cast<unsigned>(blocks), threads, 0, stream_>>>(parts, all.ranks(), begin,
                                                                        end);
      check_launch("a sum over ranks");
    }
    meet();
  }

  void gather_columns(float* part, std::span<const std::int64_t> widths, std::int32_t rows, float*,
                      float* to) override {
    RankMeeting& all = group_->meeting;
    all.shown(rank_) = part;
    meet();
    if (rank_ == 0) {
      put_columns(
          widths, rows, [&](int rank) { return all.shown(rank); }, to, stream_);
    }
    meet();  // before parts are written anew
  }

  void abort(const std::string& why) noexcept override { group_->meeting.abort(why); }

 private:
  /// What is queued from now on begins after all that any rank has queued so far. (A rank may have
  /// gone on and recorded its event once more; it waits for this one's former event at most, so no
  /// circle comes of it.)
  void meet() {
    const auto event = [&](int rank) -> const Event& {
      return group_->come[static_cast<std::size_t>(rank)];
    };
    event(rank_).record(stream_);
    group_->meeting.meet(rank_);
    for (int rank = 0; rank < group_->meeting.ranks(); ++rank) {
      if (rank != rank_) event(rank).hold(stream_);
    }
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  const cudaStream_t stream_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_card_communicators(
    std::span<const cudaStream_t> streams, std::chrono::milliseconds patience) {
  const int ranks = static_cast<int>(streams.size());
  if (ranks > most_ranks) {
    throw_usage(cat("tensor parallel: ", ranks, " ranks on one GPU; use at most ", most_ranks));
  }
  const auto group = std::make_shared<Group>(ranks, patience);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(
        std::make_unique<CardCommunicator>(group, rank, streams[static_cast<std::size_t>(rank)]));
  }
  return all;
}

}  // namespace coppice::cuda
