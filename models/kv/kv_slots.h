// KV slots and their owner.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "kernels/visible_kv.h"
#include "models/kv/kv_pool.h"

namespace coppice {

/// Slots of one pool in the order of what they hold. Owns them: what is cut, and at last
/// everything, goes back to the pool. `no_slot` stands for tokens without KV.
class KvSlots {
 public:
  /// Without a pool no slot can be taken. The pool outlives this.
  explicit KvSlots(KvPool* pool = nullptr) : pool_(pool) {}
  KvSlots(KvSlots&& other) noexcept;
  KvSlots& operator=(KvSlots&&) = delete;
  ~KvSlots() { cut(0); }

  std::span<const KvSlot> all() const { return slots_; }
  std::int32_t size() const { return static_cast<std::int32_t>(slots_.size()); }

  /// Appends `count` slots of the pool; false, with nothing changed, when fewer are free.
  bool take(std::int32_t count);
  /// Likewise slots for tokens at these positions; `open` as in KvPool::take().
  bool take(std::span<const std::int32_t> positions, KvSlot open);
  /// `open` for the token behind all of these, of which the first has position `first`.
  KvSlot open_page(std::int32_t first) const;
  /// Appends no_slot up to this size.
  void skip_to(std::int32_t size) { slots_.resize(static_cast<std::size_t>(size), no_slot); }
  /// Room for `more` slots, so that keeping them cannot fail; memory grows as by push_back.
  void make_room(std::int32_t more);
  /// Appends the slot at `index` of `from`, which has no_slot there afterwards.
  void keep(KvSlots& from, std::int32_t index);
  /// Appends the slots at [begin, end) of `from`, which has no_slot there afterwards. Cannot fail
  /// if there is room.
  void keep(KvSlots& from, std::int32_t begin, std::int32_t end);
  /// Takes away the first `count`, of which those that are slots go back.
  void drop_front(std::int32_t count);
  /// How many of the first have a slot, up to the first no_slot.
  std::int32_t leading() const;
  void swap(KvSlots& other) noexcept {
    std::swap(pool_, other.pool_);
    slots_.swap(other.slots_);
  }
  /// Appends the slot at `index` of `from`, which then has two owners: a fault for tests to notice.
  void share(const KvSlots& from, std::int32_t index) {
    slots_.push_back(from.slots_[static_cast<std::size_t>(index)]);
  }
  /// Gives the slot at `index` back and leaves no_slot there.
  void give_back(std::int32_t index);
  /// Gives back all but the first `size` slots, where there are more.
  void cut(std::int32_t size);

 private:
  void give_back(std::vector<KvSlot>::iterator first, std::vector<KvSlot>::iterator end);

  KvPool* pool_;
  std::vector<KvSlot> slots_;
};

/// Cuts what grew back to `length` when its scope ends, however it ends.
template <typename Growing>
struct CutBack {
  Growing& growing;
  std::int32_t length;
  ~CutBack() { growing.cut(length); }
};
template <typename Growing>
CutBack(Growing&, std::int32_t) -> CutBack<Growing>;

}  // namespace coppice
