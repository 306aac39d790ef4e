#include "kernels/cuda/nccl_communicator.h"

#include <mutex>
#include <string>
#include <utility>

#include "base/error.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/peer_sum.h"

namespace coppice::cuda {
namespace {

/// The connections of all ranks: if one rank gives up, none may wait for it.
class Group {
 public:
  explicit Group(std::span<const RankPlace> places) : comms_(places.size()) {
    std::vector<int> devices;
    for (const RankPlace& place : places) devices.push_back(place.device);
    int current = 0;
    check(cudaGetDevice(&current), "asking for the current GPU");
    nccl::check(nccl::library().comm_init_all(comms_.data(), static_cast<int>(devices.size()),
                                              devices.data()),
                "connecting the GPUs");
    connect_peers(devices);
    check(cudaSetDevice(current), "choosing the GPU");
  }
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    for (const PeerSum& peer : peers_) {
      (void)cudaFree(peer.inbox[peer.rank]);
      (void)cudaFree(peer.arrived[peer.rank]);
      (void)cudaFree(peer.done);
    }
    const nccl::Library& nccl = nccl::library();
    // The ranks' ends wait for each other.
    (void)nccl.group_start();
    for (nccl::Comm* const comm : comms_) {
      if (comm != nullptr) (void)nccl.comm_destroy(comm);
    }
    (void)nccl.group_end();
  }

  int ranks() const { return static_cast<int>(comms_.size()); }

  /// Null where the GPUs do not reach each other's memory.
  const PeerSum* peer(int rank) const {
    return peers_.empty() ? nullptr : &peers_[static_cast<std::size_t>(rank)];
  }

  /// Calls queue(comm), unless the group has given up.
  template <typename Queue>
  void with_comm(int rank, const Queue& queue) {
    const std::lock_guard lock(mutex_of(rank));
    nccl::Comm* const comm = comms_[static_cast<std::size_t>(rank)];
    if (comm == nullptr) {
      const std::lock_guard reading(why_mutex_);
      throw_failure(cat("tensor parallel: ", why_));
    }
    queue(comm);
  }
  /// Ends operations that run on any of the GPUs.
  void abort(const std::string& why) {
    {
      const std::lock_guard lock(why_mutex_);
      if (why_.empty()) why_ = why;
    }
    *given_up_.data() = 1;
    for (int rank = 0; rank < ranks(); ++rank) {
      const std::lock_guard lock(mutex_of(rank));
      nccl::Comm* const comm = std::exchange(comms_[static_cast<std::size_t>(rank)], nullptr);
      if (comm != nullptr) (void)nccl::library().comm_abort(comm);
    }
  }

 private:
  // Makes peers_, if every GPU reaches every other one's memory.
  void connect_peers(const std::vector<int>& devices) {
    if (ranks() > PeerSum::most_ranks) return;
    for (const int from : devices) {
      for (const int to : devices) {
        int reaches = 1;
        if (from != to) {
          check(cudaDeviceCanAccessPeer(&reaches, from, to), "asking how GPUs are connected");
        }
        if (reaches == 0) return;
      }
    }
    const auto take = [](std::int64_t values, auto*& memory) {
      const auto bytes = static_cast<std::size_t>(values) * sizeof(*memory);
      check(cudaMalloc(reinterpret_cast<void**>(&memory), bytes), "memory for sums over GPUs");
      check(cudaMemset(memory, 0, bytes), "clearing memory");
    };
    PeerSum all{};
    all.ranks = ranks();
    all.given_up = given_up_.data();
    peers_.resize(devices.size(), all);
    for (std::size_t rank = 0; rank < devices.size(); ++rank) {
      PeerSum& own = peers_[rank];
      own.rank = static_cast<int>(rank);
      check(cudaSetDevice(devices[rank]), "choosing the GPU");
      for (const int other : devices) {
        if (other == devices[rank]) continue;
        const cudaError_t status = cudaDeviceEnablePeerAccess(other, 0);
        if (status != cudaErrorPeerAccessAlreadyEnabled) check(status, "connecting two GPUs");
        (void)cudaGetLastError();
      }
      take(PeerSum::inbox_values(ranks()), own.inbox[rank]);
      take(ranks() * PeerSum::blocks, own.arrived[rank]);
      take(PeerSum::blocks, own.done);
      check(cudaDeviceSynchronize(), "clearing memory");
    }
    for (PeerSum& own : peers_) {
      for (std::size_t rank = 0; rank < devices.size(); ++rank) {
        own.inbox[rank] = peers_[rank].inbox[rank];
        own.arrived[rank] = peers_[rank].arrived[rank];
      }
    }
  }

  std::mutex& mutex_of(int rank) { return mutexes_[static_cast<std::size_t>(rank)]; }

  std::vector<nccl::Comm*> comms_;  ///< null: aborted
  std::vector<std::mutex> mutexes_{comms_.size()};
  PinnedArray<std::uint32_t> given_up_{1, "sums over GPUs"};
  std::vector<PeerSum> peers_;  ///< by rank
  std::mutex why_mutex_;
  std::string why_;
};

class NcclCommunicator final : public Communicator {
 public:
  NcclCommunicator(std::shared_ptr<Group> group, int rank, cudaStream_t stream)
      : group_(std::move(group)), rank_(rank), stream_(stream) {}

  void sum(float* values, std::int64_t count) override {
    group_->with_comm(rank_, [&](nccl::Comm* comm) {
      const PeerSum* const peer = group_->peer(rank_);
      if (peer != nullptr && PeerSum::takes(values, count, group_->ranks())) {
        return peer_sum(*peer, values, count, stream_);
      }
      nccl::check(
          nccl::library().all_reduce(values, values, static_cast<std::size_t>(count),
                                     nccl::DataType::float32, nccl::Reduction::sum, comm, stream_),
          "a sum over GPUs");
    });
    wait_unless_recording();
  }

  void gather_columns(float* part, std::span<const std::int64_t> widths, std::int32_t rows,
                      float* staged, float* all) override {
    const nccl::Library& nccl = nccl::library();
    group_->with_comm(rank_, [&](nccl::Comm* comm) {
      const auto count_of = [&](int rank) {
        return static_cast<std::size_t>(rows * widths[static_cast<std::size_t>(rank)]);
      };
      if (rank_ > 0) {
        nccl::check(nccl.send(part, count_of(rank_), nccl::DataType::float32, 0, comm, stream_),
                    "sending logits");
        return;
      }
      nccl::check(nccl.group_start(), "receiving logits");
      float* place = staged;
      for (int rank = 1; rank < group_->ranks(); place += count_of(rank++)) {
        nccl::check(
            nccl.receive(place, count_of(rank), nccl::DataType::float32, rank, comm, stream_),
            "receiving logits");
      }
      nccl::check(nccl.group_end(), "receiving logits");
    });
    wait_unless_recording();
    if (rank_ > 0) return;
    std::int64_t stride = 0;
    for (const std::int64_t width : widths) stride += width;
    const float* from = part;
    for (const std::int64_t width : widths) {
      const std::size_t bytes = static_cast<std::size_t>(width) * sizeof(float);
      check(cudaMemcpy2DAsync(all, static_cast<std::size_t>(stride) * sizeof(float), from, bytes,
                              bytes, static_cast<std::size_t>(rows), cudaMemcpyDeviceToDevice,
                              stream_),
            "putting logits together");
      all += width;
      from = from == part ? staged : from + rows * width;
    }
  }

  void abort(const std::string& why) noexcept override {
    try {
      group_->abort(why);
    } catch (...) {
      // Nothing is left to be done.
    }
  }

 private:
  /// CUDA loads a kernel's code at its first launch, and may wait for the whole GPU then. What
  /// another GPU is to come to must not hold that up, so nothing new is launched beside an
  /// operation. What is recorded has been launched before.
  void wait_unless_recording() const {
    cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
    check(cudaStreamIsCapturing(stream_, &status), "asking whether a pass is recorded");
    if (status == cudaStreamCaptureStatusNone) {
      check(cudaStreamSynchronize(stream_), "waiting for the other GPUs");
    }
  }

  const std::shared_ptr<Group> group_;
  const int rank_;
  const cudaStream_t stream_;
};

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_nccl_communicators(
    std::span<const RankPlace> places) {
  const auto group = std::make_shared<Group>(places);
  std::vector<std::unique_ptr<Communicator>> all;
  for (int rank = 0; rank < group->ranks(); ++rank) {
    all.push_back(std::make_unique<NcclCommunicator>(
        group, rank, places[static_cast<std::size_t>(rank)].stream));
  }
  return all;
}

}  // namespace coppice::cuda
