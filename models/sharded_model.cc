#include "models/sharded_model.h"

#include <algorithm>
#include <exception>
#include <utility>

#include "base/error.h"
#include "base/lost_model.h"
#include "kernels/rank_failure.h"

namespace coppice {

ShardedModel::ShardedModel(std::span<Device* const> devices,
                           std::vector<std::unique_ptr<Communicator>> communicators,
                           std::chrono::milliseconds patience, const LoadRank& load_rank)
    : devices_(devices.begin(), devices.end()),
      communicators_(std::move(communicators)),
      ranks_(devices.size()),
      threads_(devices) {
  load(load_rank);
  watch(patience);
}

ShardedModel::ShardedModel(Device& device, std::unique_ptr<RemoteRanks> others,
                           const ModelOptions& options, const LoadRank& load_rank)
    : devices_{&device}, others_(std::move(others)), ranks_(1), threads_(devices_) {
  communicators_.push_back(device.join_group(others_->load(options, device)));
  load(load_rank);
  others_->wait_until_loaded();
  watch(others_->patience());
  others_->on_failure([this](int rank, const std::string& why) { fail(rank, why); });
}

ShardedModel::~ShardedModel() {
  // They need not wait for this process to leave their group.
  if (others_) others_->end();
}

void ShardedModel::watch(std::chrono::milliseconds patience) {
  const auto has_finished = [this] {
    return std::ranges::all_of(ranks_, [](const auto& rank) { return rank->has_finished(); });
  };
  watch_ = std::make_unique<RankWatch>(patience, has_finished,
                                       [this, patience] { fail(0, RankWatch::line(patience)); });
}

void ShardedModel::load(const LoadRank& load_rank) {
  std::vector<std::exception_ptr> failures(devices_.size());
  threads_.run([&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    try {
      ranks_[at] = load_rank({rank, ranks()}, *devices_[at], *communicators_[at]);
    } catch (...) {
      failures[at] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
}

int ShardedModel::ranks() const {
  return others_ ? others_->ranks() : static_cast<int>(devices_.size());
}

std::size_t ShardedModel::weight_bytes_read() const {
  std::size_t bytes = others_ ? others_->weight_bytes_read() : 0;
  for (const auto& rank : ranks_) bytes += rank->weight_bytes_read();
  return bytes;
}

std::size_t ShardedModel::streamed_bytes() const {
  std::size_t bytes = others_ ? others_->streamed_bytes() : 0;
  for (const auto& rank : ranks_) bytes += rank->streamed_bytes();
  return bytes;
}

void ShardedModel::prepare_pool(const KvLayout& layout) {
  if (others_) others_->make_pool(layout);
}

const float* ShardedModel::forward(const ForwardBatch& batch, KvPool& pool,
                                   PassEpilogue* epilogue) {
  require_sound("; load the model again");
  first().check(batch, pool);
  const float* logits = nullptr;
  watch_->begin();
  threads_.run([&](int rank) {
    try {
      if (rank == 0 && others_) others_->run(batch, epilogue == nullptr ? 0 : epilogue->id());
      const float* const of_rank =
          ranks_[static_cast<std::size_t>(rank)]->run(batch, pool, epilogue);
      if (rank == 0) logits = of_rank;
    } catch (const std::exception& error) {
      fail(rank, error.what());
    } catch (...) {
      fail(rank, "an unknown error");
    }
  });
  watch_->end();
  require_sound("");
  return logits;
}

void ShardedModel::confirm() { require_sound(""); }

void ShardedModel::require_sound(const char* remedy) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) throw LostModel(cat(failure_, remedy));
}

void ShardedModel::on_loss(std::function<void(const std::string& why)> hear) {
  {
    const std::lock_guard lock(mutex_);
    hear_loss_ = hear;
    if (failure_.empty()) return;
  }
  if (hear) hear(failure_);
}

void ShardedModel::fail(int rank, const std::string& why) {
  std::function<void(const std::string&)> hear;
  {
    const std::lock_guard lock(mutex_);
    if (!failure_.empty()) return;  // others fail by the first one's failure
    failure_ = rank_failure(rank, ranks(), why);
    // All of this process are connected alike.
    communicators_.front()->abort(failure_);
    hear = hear_loss_;
  }
  // Without the mutex: who hears of it may wait for a pass.
  if (hear) hear(failure_);
}

}  // namespace coppice
