// What a device's memory is used for.
#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "kernels/device.h"

namespace coppice::cuda {

class MemoryLedger {
 public:
  void add(const void* memory, std::size_t bytes, const char* purpose) {
    const std::lock_guard lock(mutex_);
    std::size_t use = 0;
    while (use < uses_.size() && uses_[use].purpose != purpose) ++use;
    if (use == uses_.size()) uses_.push_back({purpose, 0});
    uses_[use].bytes += bytes;
    entries_[memory] = {use, bytes};
    total_ += bytes;
  }
  void remove(const void* memory) {
    const std::lock_guard lock(mutex_);
    const auto entry = entries_.find(memory);
    if (entry == entries_.end()) return;
    uses_[entry->second.use].bytes -= entry->second.bytes;
    total_ -= entry->second.bytes;
    entries_.erase(entry);
  }
  std::vector<MemoryUse> uses() const {
    const std::lock_guard lock(mutex_);
    return uses_;
  }
  std::size_t total() const {
    const std::lock_guard lock(mutex_);
    return total_;
  }

 private:
  struct Entry {
    std::size_t use, bytes;
  };
  mutable std::mutex mutex_;
  std::vector<MemoryUse> uses_;
  std::unordered_map<const void*, Entry> entries_;
  std::size_t total_ = 0;
};

}  // namespace coppice::cuda
