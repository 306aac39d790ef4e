#include "kernels/cuda/nccl_communicator.h"

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "base/error.h"
#include "base/start_thread.h"
#include "kernels/cuda/error.h"
#include "kernels/cuda/memory.h"
#include "kernels/cuda/nccl.h"
#include "kernels/cuda/peer_sum.h"
#include "kernels/cuda/put_columns.h"
#include "kernels/rank_failure.h"
#include "kernels/rank_link.h"

namespace coppice::cuda {
namespace {

/// The connections of all ranks: if one rank gives up, none may wait for it.
class Group : public std::enable_shared_from_this<Group> {
 public:
  explicit Group(std::span<const RankPlace> places)
      : ranks_(static_cast<int>(places.size())), comms_(places.size()) {
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
  /// This process's rank of a group of processes.
  Group(nccl::Comm* comm, int rank, int ranks) : first_(rank), ranks_(ranks), comms_{comm} {}
  Group(const Group&) = delete;
  Group& operator=(const Group&) = delete;
  ~Group() {
    for (const PeerSum& peer : peers_) {
      (void)cudaFree(peer.inbox[peer.rank]);
      (void)cudaFree(peer.lines[peer.rank]);
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

  int ranks() const { return ranks_; }

  /// Null where the GPUs do not reach each other's memory.
  const PeerSum* peer(int rank) const {
    return peers_.empty() ? nullptr : &peers_[static_cast<std::size_t>(rank)];
  }

  /// Calls queue(comm), unless the group has given up.
  template <typename Queue>
  void with_comm(int rank, const Queue& queue) {
    const std::size_t here = place_of(rank);
    const auto require_sound = [&] {
      const std::lock_guard reading(why_mutex_);
      if (!why_.empty()) throw_failure(why_);
    };
    require_sound();
    const std::lock_guard lock(mutexes_[here]);
    require_sound();
    queue(comms_[here]);
  }
  /// Ends operations that run on any of the GPUs, and does not wait for it: NCCL's own end waits
  /// until nothing has recorded its operations any more, and calls that hang hold the connections.
  void abort(const std::string& why) {
    {
      const std::lock_guard lock(why_mutex_);
      if (why_.empty()) why_ = with_rank_subject(why);
    }
    *given_up_.data() = 1;
    for (std::size_t here = 0; here < comms_.size(); ++here) {
      {
        const std::lock_guard lock(aborting_mutex_);
        ++aborting_;
      }
      const auto end_connection = [group = shared_from_this(), here] {
        nccl::Comm* comm = nullptr;
        {
          const std::lock_guard lock(group->mutexes_[here]);
          comm = std::exchange(group->comms_[here], nullptr);
        }
        if (comm != nullptr) (void)nccl::library().comm_abort(comm);
        const std::lock_guard lock(group->aborting_mutex_);
        --group->aborting_;
        group->aborted_.notify_all();
      };
      try {
        start_thread(end_connection).detach();
      } catch (const Error&) {
        // The connection is left to the process's end: its own might wait without end.
        const std::unique_lock unused(mutexes_[here], std::try_to_lock);
        if (unused) comms_[here] = nullptr;
        const std::lock_guard lock(aborting_mutex_);
        --aborting_;
      }
    }
  }
  /// Waits a while for what aborts connections: once what recorded operations is gone, it ends
  /// soon.
  void wait_for_aborts() {
    std::unique_lock lock(aborting_mutex_);
    aborted_.wait_for(lock, std::chrono::seconds(2), [&] { return aborting_ == 0; });
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
      take(PeerSum::inbox_lines(ranks()), own.lines[rank]);
      take(ranks() * PeerSum::blocks, own.arrived[rank]);
      take(PeerSum::blocks, own.done);
      check(cudaDeviceSynchronize(), "clearing memory");
    }
    for (PeerSum& own : peers_) {
      for (std::size_t rank = 0; rank < devices.size(); ++rank) {
        own.inbox[rank] = peers_[rank].inbox[rank];
        own.lines[rank] = peers_[rank].lines[rank];
        own.arrived[rank] = peers_[rank].arrived[rank];
      }
    }
  }

  std::size_t place_of(int rank) const { return static_cast<std::size_t>(rank - first_); }

  const int first_ = 0;             ///< rank of this process
  const int ranks_;                 ///< of all processes
  std::vector<nccl::Comm*> comms_;  ///< of this process's ranks; null: being aborted
  std::vector<std::mutex> mutexes_{comms_.size()};
  PinnedArray<std::uint32_t> given_up_{1, "sums over GPUs"};
  std::vector<PeerSum> peers_;  ///< by rank
  std::mutex aborting_mutex_;
  std::condition_variable aborted_;
  int aborting_ = 0;  ///< threads that abort connections, and hold this
  std::mutex why_mutex_;
  std::string why_;  ///< not empty: it has given up
};

class NcclCommunicator final : public Communicator {
 public:
  /// `links` are told if this rank gives up.
  NcclCommunicator(std::shared_ptr<Group> group, int rank, cudaStream_t stream,
                   std::vector<RankLink*> links = {})
      : group_(std::move(group)), rank_(rank), stream_(stream), links_(std::move(links)) {}

  ~NcclCommunicator() override { group_->wait_for_aborts(); }

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
    const auto count_of = [&](int rank) {
      return static_cast<std::size_t>(rows * widths[static_cast<std::size_t>(rank)]);
    };
    group_->with_comm(rank_, [&](nccl::Comm* comm) {
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
    const float* other = staged;
    const auto part_of = [&](int rank) -> const float* {
      return rank == 0 ? part : std::exchange(other, other + count_of(rank));
    };
    put_columns(widths, rows, part_of, all, stream_);
  }

  void abort(const std::string& why) noexcept override {
    for (RankLink* const link : links_) link->abort(why);
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
  const std::vector<RankLink*> links_;
};

/// What comes of joining a group, which has no end if a process is lost meanwhile.
struct Joining {
  std::mutex mutex;
  std::condition_variable done;
  bool is_done = false;
  nccl::Comm* comm = nullptr;
  nccl::Result result{};
};

}  // namespace

std::string new_nccl_group_id() {
  nccl::UniqueId id{};
  nccl::check(nccl::library().get_unique_id(&id), "naming a group");
  return {std::begin(id.bytes), std::end(id.bytes)};
}

std::unique_ptr<Communicator> join_nccl_group(const RankGroup& group, cudaStream_t stream) {
  nccl::UniqueId id{};
  if (group.id.size() != sizeof(id.bytes)) throw_failure("NCCL: rank 0 names no group");
  std::copy(group.id.begin(), group.id.end(), id.bytes);
  int device = 0;
  check(cudaGetDevice(&device), "asking for the current GPU");
  const nccl::Library& nccl = nccl::library();
  const auto joining = std::make_shared<Joining>();
  // Left behind if a process never comes.
  start_thread([joining, id, device, &nccl, rank = group.rank, ranks = group.ranks] {
    nccl::Comm* comm = nullptr;
    (void)cudaSetDevice(device);
    const nccl::Result result = nccl.comm_init_rank(&comm, ranks, id, rank);
    const std::lock_guard lock(joining->mutex);
    joining->comm = comm;
    joining->result = result;
    joining->is_done = true;
    joining->done.notify_all();
  }).detach();
  std::unique_lock lock(joining->mutex);
  const auto patience = group.links.front()->patience();
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!joining->done.wait_for(lock, std::chrono::milliseconds(50),
                                 [&] { return joining->is_done; })) {
    for (RankLink* const link : group.links) link->require_sound();
    if (std::chrono::steady_clock::now() < end) continue;
    throw_failure(cat("NCCL: the GPUs of ", group.ranks, " processes were not connected within ",
                      seconds_of(patience),
                      " s; see that their hosts reach each other (NCCL_SOCKET_IFNAME)"));
  }
  nccl::check(joining->result, "connecting the processes' GPUs");
  return std::make_unique<NcclCommunicator>(
      std::make_shared<Group>(joining->comm, group.rank, group.ranks), group.rank, stream,
      group.links);
}

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
