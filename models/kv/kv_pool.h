// A model's paged KV memory and who owns which slot.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "kernels/device.h"

namespace coppice {

/// Slots are handed out one by one, so that accepting a path appends its slots to the sequence and
/// frees the others: nothing is moved. Thread-safe, for texts end at any time: KvSlots
/// (models/kv/kv_slots.h) owns what was taken.
///
/// Attention copies a page at once if it holds neighbours of one text (on a GPU tokens that lie
/// anywhere take up to 1.4 times as long). So a text's token of position p wants place
/// p % page_size of a page that the text has for itself, however many texts grow side by side. That
/// is a wish: a page that nobody else needs is not kept for anybody.
class KvPool {
 public:
  KvPool(Device& device, const KvLayout& layout, int rank = 0);
  /// Of a model that is split over devices (models/shard.h), from this rank on: a slot is the same
  /// token's on each.
  KvPool(std::span<Device* const> devices, const KvLayout& of_a_rank, int first_rank = 0);

  /// Of one rank's memory.
  const KvLayout& layout() const { return layout_; }
  void* keys(int rank = 0) const { return memory_of(rank).keys.data(); }
  void* values(int rank = 0) const { return memory_of(rank).values.data(); }
  /// Of all ranks that are here.
  std::size_t bytes() const;

  std::int32_t free_slots() const;
  /// Takes slots.size() slots, the lowest free ones; false, taking none, when fewer are free.
  bool take(std::span<KvSlot> slots);
  /// Likewise, for tokens at these positions of a text, which never fall below the first. `open`: a
  /// slot of the page that has the text's tokens before the first, if this is of their page;
  /// no_slot: there is none. Of tokens at one position the first has its place, the others lie
  /// where they are least in the way, and so does what finds its place taken or no page free.
  bool take(std::span<KvSlot> slots, std::span<const std::int32_t> positions, KvSlot open);
  /// Gives slots back. Throws Error(failure) for one that is not taken.
  void give_back(std::span<const KvSlot> slots);

 private:
  KvLayout layout_;
  struct Memory {
    DeviceBuffer keys, values;
  };
  const Memory& memory_of(int rank) const {
    return memory_[static_cast<std::size_t>(rank - first_rank_)];
  }
  const int first_rank_;
  std::vector<Memory> memory_;  ///< by rank
  mutable std::mutex mutex_;    ///< of what follows
  static constexpr std::int32_t no_page = -1;
  std::int32_t free_page();
  KvSlot highest_free();
  bool is_taken(KvSlot slot) const;
  void mark(KvSlot slot);

  std::vector<std::uint64_t> taken_;      ///< a bit per slot
  std::vector<std::int32_t> taken_of_;    ///< by page
  std::vector<std::int32_t> pages_;       ///< of the text that takes, from its first position's on
  std::size_t lowest_ = 0, highest_ = 0;  ///< no free slot in words before and behind these
  std::int32_t lowest_page_ = 0;          ///< no page before it is wholly free
  std::int32_t free_ = 0;
};

}  // namespace coppice
