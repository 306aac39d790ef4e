// A model that is split over devices (models/shard.h).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "kernels/communicator.h"
#include "models/graph_model.h"
#include "models/rank_threads.h"
#include "models/rank_watch.h"
#include "models/remote_ranks.h"

namespace coppice {

/// Runs every pass on all ranks at once: each has its slice, its device, its part of the KV memory
/// and a thread, or a process. Logits come together on the first rank, and an epilogue is queued
/// there. To those who use it it is a Model like any other, for one thread at a time.
///
/// A rank that fails takes the others out of what they wait for. The pass then throws what it was
/// that failed, in one line, and so does every later one: the ranks' KV may differ by then.
class ShardedModel final : public Model {
 public:
  /// Makes a rank's slice. Called on the rank's thread, for all ranks at once.
  using LoadRank = std::function<std::unique_ptr<GraphModel>(const Shard& shard, Device& device,
                                                             Communicator& communicator)>;

  /// One communicator a device. A pass may take `patience`. Throws what load_rank throws, of the
  /// first rank that does.
  ShardedModel(std::span<Device* const> devices,
               std::vector<std::unique_ptr<Communicator>> communicators,
               std::chrono::milliseconds patience, const LoadRank& load_rank);
  /// Rank 0, with the others in other processes, which load by the same options. Throws also what
  /// they fail by.
  ShardedModel(Device& device, std::unique_ptr<RemoteRanks> others, const ModelOptions& options,
               const LoadRank& load_rank);
  ~ShardedModel() override;

  const ModelConfig& config() const override { return first().config(); }
  Device& device() const override { return first().device(); }
  std::vector<Device*> devices() const override { return devices_; }
  int ranks() const override;
  const ModelOptions& options() const override { return first().options(); }
  std::size_t weight_bytes_read() const override;
  std::span<const std::size_t> layer_blocks() const override { return first().layer_blocks(); }
  std::size_t streamed_bytes() const override;
  std::string quantised_formats() const override { return first().quantised_formats(); }
  bool has_integers() const override { return first().has_integers(); }
  std::int32_t max_positions() const override { return first().max_positions(); }
  KvLayout kv_layout(std::int32_t slots, std::int32_t page_size) const override {
    return first().kv_layout(slots, page_size);
  }
  void prepare_pool(const KvLayout& layout) override;
  const float* forward(const ForwardBatch& batch, KvPool& pool, PassEpilogue* epilogue) override;
  void confirm() override;
  void on_loss(std::function<void(const std::string& why)> hear) override;

 private:
  GraphModel& first() const { return *ranks_.front(); }
  void fail(int rank, const std::string& why);
  void load(const LoadRank& load_rank);
  void watch(std::chrono::milliseconds patience);
  void require_sound(const char* remedy);

  const std::vector<Device*> devices_;
  const std::unique_ptr<RemoteRanks> others_;  ///< null: all ranks are here
  std::vector<std::unique_ptr<Communicator>> communicators_;
  std::vector<std::unique_ptr<GraphModel>> ranks_;
  std::mutex mutex_;
  std::string failure_;  ///< of the first rank that failed, and stays; empty: none did
  std::function<void(const std::string&)> hear_loss_;
  RankThreads threads_;
  std::unique_ptr<RankWatch> watch_;  ///< ends first
};

}  // namespace coppice
