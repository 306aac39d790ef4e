#include "models/sharded_model.h"

#include <exception>
#include <utility>

#include "base/error.h"

namespace coppice {
namespace {

constexpr std::string_view subject = "tensor parallel: ";

}  // namespace

ShardedModel::ShardedModel(std::span<Device* const> devices,
                           std::vector<std::unique_ptr<Communicator>> communicators,
                           const LoadRank& load_rank)
    : devices_(devices.begin(), devices.end()),
      communicators_(std::move(communicators)),
      ranks_(devices.size()),
      threads_(devices) {
  std::vector<std::exception_ptr> failures(devices.size());
  threads_.run([&](int rank) {
    const auto at = static_cast<std::size_t>(rank);
    try {
      ranks_[at] =
          load_rank({rank, static_cast<int>(devices_.size())}, *devices_[at], *communicators_[at]);
    } catch (...) {
      failures[at] = std::current_exception();
    }
  });
  for (const std::exception_ptr& failure : failures) {
    if (failure != nullptr) std::rethrow_exception(failure);
  }
}

std::size_t ShardedModel::weight_bytes_read() const {
  std::size_t bytes = 0;
  for (const auto& rank : ranks_) bytes += rank->weight_bytes_read();
  return bytes;
}

std::size_t ShardedModel::streamed_bytes() const {
  std::size_t bytes = 0;
  for (const auto& rank : ranks_) bytes += rank->streamed_bytes();
  return bytes;
}

const float* ShardedModel::forward(const ForwardBatch& batch, KvPool& pool,
                                   PassEpilogue* epilogue) {
  if (!failure_.empty()) throw_failure(cat(failure_, "; load the model again"));
  first().check(batch, pool);
  const float* logits = nullptr;
  threads_.run([&](int rank) {
    try {
      const float* const of_rank =
          ranks_[static_cast<std::size_t>(rank)]->run(batch, pool, epilogue);
      if (rank == 0) logits = of_rank;
    } catch (const std::exception& error) {
      fail(rank, error.what());
    } catch (...) {
      fail(rank, "an unknown error");
    }
  });
  if (!failure_.empty()) throw_failure(failure_);
  return logits;
}

void ShardedModel::fail(int rank, const std::string& why) {
  const std::lock_guard lock(mutex_);
  if (!failure_.empty()) return;  // others fail by the first one's failure
  failure_ = why.starts_with(subject)
                 ? why
                 : cat(subject, "rank ", rank, " of ", ranks_.size(), " failed: ", why);
  communicators_[static_cast<std::size_t>(rank)]->abort(failure_);
}

}  // namespace coppice
