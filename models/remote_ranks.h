// Ranks of a split model that are other processes, on this host or on others: how they meet, and
// how rank 0 has them run its passes.
//
// Rank 0 listens. A process that joins says which build it is, which model it has and the key, and
// is given the next number. It then loads its slice by rank 0's options, and repeats every pass.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/tcp.h"
#include "kernels/communicator.h"
#include "kernels/device.h"
#include "kernels/rank_link.h"
#include "models/model.h"
#include "models/pass_message.h"

namespace coppice {

class GraphModel;

/// What processes must agree on to share a model.
struct RankClaims {
  std::string build;  ///< version and sources
  std::string model;  ///< fingerprint of the target's files
  std::string key;    ///< that they were told; may be empty
};

/// What rank 0 asks of a process's device.
struct RankDevice {
  bool cuda = false;
  DType compute = DType::f32;  ///< of a CPU, as the next two
  bool integer_products = false;
  DType kv = DType::f32;
};

/// What memory a process has.
struct RankMemory {
  DeviceMemory device;
  std::int64_t host = 0;  ///< bytes that are free
};

/// Rank 0's side.
class RemoteRanks {
 public:
  /// Waits until ranks 1 to ranks - 1 have joined. Connections that send something else, or another
  /// key, are closed, and waited past. Throws Error(failure) for a process of another build or with
  /// another model, for one that fails, and once `patience` is over. Calls waiting(missing, share)
  /// a few times a second: how many have not joined, and how much is over of the time that was left
  /// when the last one joined.
  using Waiting = std::function<void(int missing, double share)>;
  RemoteRanks(TcpListener& listener, int ranks, const RankClaims& claims, const RankDevice& device,
              std::chrono::milliseconds patience, const Waiting& waiting = {});
  ~RemoteRanks() { end(); }
  RemoteRanks(const RemoteRanks&) = delete;
  RemoteRanks& operator=(const RemoteRanks&) = delete;

  int ranks() const { return static_cast<int>(links_.size()) + 1; }
  std::chrono::milliseconds patience() const { return patience_; }
  /// Of each.
  std::span<const RankMemory> memory() const { return memory_; }

  /// Has them load their slices of a model by these options, of which shard and stream_folder are
  /// their own, while this process joins the group that is returned and loads its own.
  RankGroup load(const ModelOptions& options, const Device& device);
  void wait_until_loaded();
  /// Bytes of weights that their passes read, and that they copy; of all together.
  std::size_t weight_bytes_read() const { return weight_bytes_read_; }
  std::size_t streamed_bytes() const { return streamed_bytes_; }
  /// Has them take their part of a pool, in place of a former one.
  void make_pool(const KvLayout& layout);
  /// Has them run a pass.
  void run(const ForwardBatch& batch, std::uint64_t epilogue);
  /// Calls hear(rank, why), from any thread, if one gives up or is lost, until end().
  void on_failure(const std::function<void(int rank, const std::string& why)>& hear);
  /// Tells them that they are needed no more, or, if they have not loaded, that rank 0 gave up.
  void end() noexcept;

 private:
  struct Newcomer;
  void await(TcpListener& listener, int ranks, const RankClaims& claims, const RankDevice& device,
             const Waiting& waiting);
  bool listen_to(Newcomer& newcomer, int ranks, const RankClaims& claims, const RankDevice& device);
  void admit(TcpSocket& socket, const std::string& hello, int ranks, const RankClaims& claims,
             const RankDevice& device);

  const std::chrono::milliseconds patience_;
  std::vector<std::unique_ptr<RankLink>> links_;
  std::vector<RankMemory> memory_;
  std::size_t weight_bytes_read_ = 0, streamed_bytes_ = 0;
  bool has_loaded_ = false, has_ended_ = false;
  std::string last_stranger_;  ///< what was wrong with it
  PassMessage message_;
};

/// Another rank's side: joins the group of the process that listens at an address, for one model.
/// Rank 0 may leave it without passes for any time, but sends beats, as it does: either fails after
/// its patience without any message.
class JoinedRank {
 public:
  /// Throws Error(failure) with rank 0's reason if it refuses, and once `patience` is over. Until
  /// somebody listens there it calls waiting(share) a few times a second: how much is over of that
  /// time.
  JoinedRank(const TcpAddress& address, const RankClaims& claims,
             std::chrono::milliseconds patience,
             const std::function<void(double share)>& waiting = {});

  const RankDevice& device() const { return device_; }
  int rank() const { return rank_; }
  int ranks() const { return ranks_; }

  /// Tells rank 0 why this rank cannot take part.
  void give_up(const std::string& why) noexcept;
  /// Says what memory there is, loads the slice that rank 0 asks for by load(options, group) and
  /// runs passes until rank 0 needs them no more. Throws Error(failure) if either side fails; the
  /// other one is told.
  using Load = std::function<std::unique_ptr<GraphModel>(const ModelOptions& options,
                                                         Communicator& communicator)>;
  void serve(const RankMemory& memory, Device& device, const Load& load);

 private:
  void follow(Device& device, const Load& load);

  std::unique_ptr<RankLink> link_;
  RankDevice device_;
  int rank_ = 0, ranks_ = 1;
};

}  // namespace coppice
