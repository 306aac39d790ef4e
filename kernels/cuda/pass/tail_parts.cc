#include "kernels/cuda/pass/tail_parts.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

namespace coppice {
namespace {

std::size_t to_size(std::int32_t n) { return static_cast<std::size_t>(n); }

}  // namespace

// Whole blocks, then one by one.
std::size_t equal_slots(const KvSlot* a, const KvSlot* b, std::size_t count) {
  constexpr std::size_t block = 128;
  std::size_t same = 0;
  while (same + block <= count && std::memcmp(a + same, b + same, block * sizeof(KvSlot)) == 0) {
    same += block;
  }
  while (same < count && a[same] == b[same]) ++same;
  return same;
}

void TailParts::forget() {
  places_.clear();
  used_ = 0;
  full_ = false;
}

// The place that a text is known by: of its first slot, or, as the beginnings of some may be the
// same short run, of the one behind `longest_common`. Null where both are another segment's of this
// pass, or the text has no slots.
TailParts::Place* TailParts::place_by_slot(std::span<const KvSlot> slots) {
  for (const std::size_t from : {std::size_t{0}, to_size(longest_common)}) {
    if (from >= slots.size()) break;
    const std::span<const KvSlot> rest = slots.subspan(from);
    const auto first =
        std::find_if(rest.begin(), rest.end(), [](KvSlot slot) { return slot >= 0; });
    if (first == rest.end()) break;
    const std::size_t key = to_size(*first);
    if (key >= places_.size()) places_.resize(key + 1);
    Place& place = places_[key];
    if (std::exchange(place.pass, pass_) != pass_) return &place;
  }
  return nullptr;
}

// Null where there is no place left, too.
TailParts::Place* TailParts::place_of(std::span<const KvSlot> slots) {
  Place* const known = place_by_slot(slots);
  if (known == nullptr) return nullptr;
  Place& place = *known;
  const auto size = static_cast<std::int32_t>(slots.size());
  if (size <= place.capacity) return &place;
  // With room to grow.
  const std::int32_t capacity = size + std::max(2 * shortest, size / 4);
  if (capacity > static_cast<std::int32_t>(mirror_.size()) - used_) {
    full_ = true;
    return nullptr;
  }
  place = {std::exchange(used_, used_ + capacity), capacity, 0, pass_};
  return &place;
}

void TailParts::divide(std::span<const KvSegment> tail, VisibleKv* list) {
  if (full_ || !departed_) forget();
  departed_ = false;
  ++pass_;
  parts_.clear();
  listed_ = 0;
  std::int32_t at = 0;
  for (const KvSegment& segment : tail) {
    const auto size = static_cast<std::int32_t>(segment.slots.size());
    if (size == 0) continue;
    Place* const place = size < shortest ? nullptr : place_of(segment.slots);
    if (place == nullptr) {
      // Neighbours in the list and in the tail are one part.
      if (parts_.empty() || parts_.back().table >= 0)
        parts_.push_back({at, at, 0, -1, listed_, 0, 0, 0});
      list_tokens(segment, 0, list);
      parts_.back().end = at += size;
      continue;
    }
    KvSlot* const mirror = mirror_.data() + place->begin;
    const auto kept = static_cast<std::int32_t>(
        equal_slots(segment.slots.data(), mirror, to_size(std::min(size, place->known))));
    parts_.push_back({at, at + size, kept, place->begin, listed_, segment.q_begin, segment.q_end,
                      segment.first_position});
    list_tokens(segment, kept, list);
    std::copy(segment.slots.begin() + kept, segment.slots.end(), mirror + kept);
    // What lies behind a shorter text is still there: it may come back to that.
    place->known = kept < size ? size : place->known;
    at += size;
  }
}

void TailParts::list_tokens(const KvSegment& segment, std::int32_t from, VisibleKv* list) {
  std::int32_t position = segment.first_position + from;
  for (const KvSlot slot : segment.slots.subspan(to_size(from))) {
    list[listed_++] = {slot, segment.q_begin, segment.q_end, position++};
  }
}

}  // namespace coppice
