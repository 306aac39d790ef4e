#include "models/kv/kv_pool.h"

#include <algorithm>
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

KvPool::KvPool(Device& device, const KvLayout& layout)
    : layout_(checked(layout)),
      keys_(device.reserve(bytes_of(layout, device.kv_dtype()), "KV pool, keys")),
      values_(device.reserve(bytes_of(layout, device.kv_dtype()), "KV pool, values")),
      taken_((static_cast<std::size_t>(layout.slots()) + 63) / 64),
      free_(layout.slots()) {
  // Slots past the end count as taken for ever.
  if (const int used = layout.slots() % 64; used != 0) taken_.back() = ~std::uint64_t{0} << used;
}

std::int32_t KvPool::free_slots() const {
  const std::lock_guard lock(mutex_);
  return free_;
}

bool KvPool::take(std::span<KvSlot> slots) {
  const std::lock_guard lock(mutex_);
  if (slots.size() > static_cast<std::size_t>(free_)) return false;
  std::size_t word = lowest_;
  for (KvSlot& slot : slots) {
    while (taken_[word] == ~std::uint64_t{0}) ++word;
    const int bit = std::countr_one(taken_[word]);
    taken_[word] |= std::uint64_t{1} << bit;
    slot = static_cast<KvSlot>(word * 64) + bit;
  }
  lowest_ = word;
  free_ -= static_cast<std::int32_t>(slots.size());
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
    ++free_;
  }
}

}  // namespace coppice
