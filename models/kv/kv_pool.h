// A model's paged KV memory and who owns which slot.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace coppice {

/// Slots are handed out one by one, lowest free first, so that accepting a path appends its
/// slots to the sequence and frees the others: nothing is moved. Thread-safe, for texts end at any
/// time: KvSlots (models/kv/kv_slots.h) owns what was taken.
class KvPool {
 public:
  KvPool(Device& device, const KvLayout& layout);

  const KvLayout& layout() const { return layout_; }
  void* keys() const { return keys_.data(); }
  void* values() const { return values_.data(); }
  std::size_t bytes() const { return keys_.bytes() + values_.bytes(); }

  std::int32_t free_slots() const;
  /// Takes slots.size() slots; false, taking none, when fewer are free.
  bool take(std::span<KvSlot> slots);
  /// Gives slots back. Throws Error(failure) for one that is not taken.
  void give_back(std::span<const KvSlot> slots);

 private:
  KvLayout layout_;
  DeviceBuffer keys_, values_;
  mutable std::mutex mutex_;          ///< of what follows
  std::vector<std::uint64_t> taken_;  ///< a bit per slot
  std::size_t lowest_ = 0;            ///< no free slot in words before this one
  std::int32_t free_ = 0;
};

}  // namespace coppice
