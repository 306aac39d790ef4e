#include "models/kv_slots.h"

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

void KvSlots::cut(std::int32_t size) {
  if (size >= this->size()) return;
  const auto first = slots_.begin() + size;
  const auto taken = std::remove(first, slots_.end(), no_slot);
  if (first != taken) pool_->give_back({first, taken});
  slots_.resize(static_cast<std::size_t>(size));
}

}  // namespace coppice
