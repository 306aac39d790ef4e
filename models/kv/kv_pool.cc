#include "models/kv/kv_pool.h"

#include <algorithm>
#include <array>
#include <bit>

#include "base/error.h"

namespace coppice {
namespace {

KvLayout checked(const KvLayout& layout) {
  if (layout.layers < 1 || layout.kv_heads < 1 || layout.head_dim < 1 || layout.page_size < 1 ||
      layout.pages < 1) {
    throw_failure(cat("KV pool of ", layout.layers, " layers, ", layout.kv_heads, " heads of ",
                      layout.head_dim, ", ", layout.pages, " pages of ", layout.page_size,
                      ": every number must be at least 1"));
  }
  if (std::int64_t{layout.pages} * layout.page_size > INT32_MAX) {
    throw_failure(cat("KV pool of ", layout.pages, " pages of ", layout.page_size,
                      " tokens: more than ", INT32_MAX, " slots; ask for a smaller context"));
  }
  // Attention counts rows of head_dim from a layer's first in 32 bits.
  if (std::int64_t{layout.pages} * layout.page_size * layout.kv_heads > INT32_MAX) {
    throw_failure(cat("KV pool of ", layout.slots(), " slots with ", layout.kv_heads,
                      " heads each: more than ", INT32_MAX,
                      " keys in a layer; ask for a smaller context"));
  }
  return layout;
}

std::size_t bytes_of(const KvLayout& layout, DType dtype) {
  std::size_t bytes = size_of(dtype);
  for (const std::int32_t extent :
       {layout.layers, layout.pages, layout.kv_heads, layout.page_size, layout.head_dim}) {
    if (__builtin_mul_overflow(bytes, static_cast<std::size_t>(extent), &bytes)) {
      throw_failure("KV pool: its size overflows; ask for a smaller context");
    }
  }
  return bytes;
}

}  // namespace

KvPool::KvPool(Device& device, const KvLayout& layout, int rank)
    : KvPool(std::array<Device*, 1>{&device}, layout, rank) {}

KvPool::KvPool(std::span<Device* const> devices, const KvLayout& of_a_rank, int first_rank)
    : layout_(checked(of_a_rank)),
      first_rank_(first_rank),
      taken_((static_cast<std::size_t>(layout_.slots()) + 63) / 64),
      taken_of_(static_cast<std::size_t>(layout_.pages)),
      highest_(taken_.size() - 1),
      free_(layout_.slots()) {
  for (Device* const device : devices) {
    const DeviceScope scope(*device);
    const std::size_t bytes = bytes_of(layout_, device->kv_dtype());
    memory_.push_back(
        {device->reserve(bytes, "KV pool, keys"), device->reserve(bytes, "KV pool, values")});
  }
  // Slots past the end count as taken for ever.
  if (const int used = layout_.slots() % 64; used != 0) taken_.back() = ~std::uint64_t{0} << used;
}

std::size_t KvPool::bytes() const {
  std::size_t bytes = 0;
  for (const Memory& memory : memory_) bytes += memory.keys.bytes() + memory.values.bytes();
  return bytes;
}

std::int32_t KvPool::free_slots() const {
  const std::lock_guard lock(mutex_);
  return free_;
}

bool KvPool::is_taken(KvSlot slot) const {
  return (taken_[static_cast<std::size_t>(slot) / 64] >> (slot % 64) & 1) != 0;
}

void KvPool::mark(KvSlot slot) {
  taken_[static_cast<std::size_t>(slot) / 64] |= std::uint64_t{1} << (slot % 64);
  ++taken_of_[static_cast<std::size_t>(slot / layout_.page_size)];
  --free_;
}

bool KvPool::take(std::span<KvSlot> slots) {
  const std::lock_guard lock(mutex_);
  if (slots.size() > static_cast<std::size_t>(free_)) return false;
  for (KvSlot& slot : slots) {
    while (taken_[lowest_] == ~std::uint64_t{0}) ++lowest_;
    slot = static_cast<KvSlot>(lowest_ * 64) + std::countr_one(taken_[lowest_]);
    mark(slot);
  }
  return true;
}

// The lowest page that is wholly free.
std::int32_t KvPool::free_page() {
  while (lowest_page_ < layout_.pages && taken_of_[static_cast<std::size_t>(lowest_page_)] > 0) {
    ++lowest_page_;
  }
  return lowest_page_ < layout_.pages ? lowest_page_ : no_page;
}

// Far from where pages are looked for.
KvSlot KvPool::highest_free() {
  while (taken_[highest_] == ~std::uint64_t{0}) --highest_;
  return static_cast<KvSlot>(highest_ * 64) + 63 - std::countl_one(taken_[highest_]);
}

bool KvPool::take(std::span<KvSlot> slots, std::span<const std::int32_t> positions, KvSlot open) {
  const std::lock_guard lock(mutex_);
  if (slots.size() > static_cast<std::size_t>(free_)) return false;
  if (slots.empty()) return true;
  const std::int32_t first = positions[0] / layout_.page_size,
                     last = *std::max_element(positions.begin(), positions.end());
  pages_.assign(static_cast<std::size_t>(last / layout_.page_size - first + 1), no_page);
  if (open != no_slot) pages_[0] = open / layout_.page_size;
  for (std::size_t i = 0; i < slots.size(); ++i) {
    std::int32_t& page = pages_[static_cast<std::size_t>(positions[i] / layout_.page_size - first)];
    if (page == no_page) page = free_page();
    KvSlot& slot = slots[i];
    slot = page == no_page ? no_slot : page * layout_.page_size + positions[i] % layout_.page_size;
    if (slot == no_slot || is_taken(slot)) slot = highest_free();
    mark(slot);
  }
  return true;
}

void KvPool::give_back(std::span<const KvSlot> slots) {
  const std::lock_guard lock(mutex_);
  for (const KvSlot slot : slots) {
    const bool inside = slot >= 0 && slot < layout_.slots();
    const std::size_t word = inside ? static_cast<std::size_t>(slot) / 64 : 0;
    const std::uint64_t bit = inside ? std::uint64_t{1} << (slot % 64) : 0;
    if ((taken_[word] & bit) == 0) {
      throw_failure(
          cat("KV pool: slot ", slot, " of ", layout_.slots(), " is given back but was not taken"));
    }
    taken_[word] &= ~bit;
    lowest_ = std::min(lowest_, word);
    highest_ = std::max(highest_, word);
    const std::int32_t page = slot / layout_.page_size;
    if (--taken_of_[static_cast<std::size_t>(page)] == 0) {
      lowest_page_ = std::min(lowest_page_, page);
    }
    ++free_;
  }
}

}  // namespace coppice
