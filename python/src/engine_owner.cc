#include "engine_owner.h"

#include <utility>

#include "batch.h"

namespace coppice_python {

EngineOwner::~EngineOwner() {
  end_all();
  batches_.clear();
  const nb::gil_scoped_release unlocked;
  coppice_engine_free(engine_);
}

void EngineOwner::add(std::shared_ptr<Batch> batch) {
  sweep();
  const std::lock_guard lock(mutex_);
  batches_.push_back(std::move(batch));
}

void EngineOwner::sweep() {
  std::vector<std::shared_ptr<Batch>> kept,
      dropped;  // freed without the lock: Python's code may run
  const std::lock_guard lock(mutex_);
  for (auto& batch : batches_) {
    const bool stays = batch.use_count() > 1 || !batch->ended();
    (stays ? kept : dropped).push_back(std::move(batch));
  }
  batches_ = std::move(kept);
}

void EngineOwner::end_all() {
  std::vector<std::shared_ptr<Batch>> all;
  {
    const std::lock_guard lock(mutex_);
    all = batches_;
  }
  const nb::gil_scoped_release unlocked;
  for (const auto& batch : all) batch->stop();
  for (const auto& batch : all) batch->wait();
}

}  // namespace coppice_python
