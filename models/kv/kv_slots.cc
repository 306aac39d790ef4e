#include "models/kv/kv_slots.h"

#include <algorithm>
#include <utility>

namespace coppice {

KvSlots::KvSlots(KvSlots&& other) noexcept
    : pool_(other.pool_), slots_(std::exchange(other.slots_, {})) {}

bool KvSlots::take(std::int32_t count) {
  const std::size_t before = slots_.size();
  slots_.resize(before + static_cast<std::size_t>(count), no_slot);
  if (pool_ != nullptr && pool_->take(std::span(slots_).subspan(before))) return true;
  slots_.resize(before);
  return false;
}

bool KvSlots::take(std::span<const std::int32_t> positions, KvSlot open) {
  CutBack taken{*this, size()};
  slots_.resize(slots_.size() + positions.size(), no_slot);
  const auto wanted = std::span(slots_).last(positions.size());
  if (pool_ == nullptr || !pool_->take(wanted, positions, open)) return false;
  taken.length = size();
  return true;
}

// The first token of a page that lies where it wants to: those that came later may lie elsewhere,
// and be in such a place by chance.
KvSlot KvSlots::open_page(std::int32_t first) const {
  if (pool_ == nullptr) return no_slot;
  const std::int32_t end = first + size(), page_size = pool_->layout().page_size;
  for (std::int32_t at = std::max(first, end - end % page_size); at < end; ++at) {
    const KvSlot slot = slots_[static_cast<std::size_t>(at - first)];
    if (slot != no_slot && slot % page_size == at % page_size) return slot;
  }
  return no_slot;
}

void KvSlots::make_room(std::int32_t more) {
  const std::size_t needed = slots_.size() + static_cast<std::size_t>(more);
  if (needed > slots_.capacity()) slots_.reserve(std::max(needed, 2 * slots_.capacity()));
}

void KvSlots::keep(KvSlots& from, std::int32_t index) {
  slots_.push_back(no_slot);
  std::swap(slots_.back(), from.slots_[static_cast<std::size_t>(index)]);
}

void KvSlots::give_back(std::int32_t index) {
  KvSlot& slot = slots_[static_cast<std::size_t>(index)];
  pool_->give_back({&slot, 1});
  slot = no_slot;
}

void KvSlots::keep(KvSlots& from, std::int32_t begin, std::int32_t end) {
  const auto first = from.slots_.begin() + begin, last = from.slots_.begin() + end;
  slots_.insert(slots_.end(), first, last);
  std::fill(first, last, no_slot);
}

// What was given back stands there in another order.
void KvSlots::give_back(std::vector<KvSlot>::iterator first, std::vector<KvSlot>::iterator end) {
  const auto taken = std::remove(first, end, no_slot);
  if (first != taken) pool_->give_back({first, taken});
}

void KvSlots::drop_front(std::int32_t count) {
  const auto end = slots_.begin() + count;
  give_back(slots_.begin(), end);
  slots_.erase(slots_.begin(), end);
}

std::int32_t KvSlots::leading() const {
  return static_cast<std::int32_t>(std::find(slots_.begin(), slots_.end(), no_slot) -
                                   slots_.begin());
}

void KvSlots::cut(std::int32_t size) {
  if (size >= this->size()) return;
  give_back(slots_.begin() + size, slots_.end());
  slots_.resize(static_cast<std::size_t>(size));
}

}  // namespace coppice
