#include "kernels/cuda/attention/item_list.h"

#include <algorithm>
#include <cstring>

namespace coppice {

void ItemList::assign(std::span<const KvSegment> kv, std::int32_t rows, std::int32_t group,
                      AttentionDivision division) {
  plan_.assign(kv, rows, division);
  // The plan leaves out what nobody sees; the list has its places all the same.
  places_.clear();
  std::int32_t place = 0;
  for (const KvSegment& segment : kv) {
    for (const KvSlot slot : segment.slots) {
      if (slot != no_slot && segment.q_begin < segment.q_end) places_.push_back(place);
      ++place;
    }
  }
  const bool narrow =
      std::all_of(plan_.chunks.begin(), plan_.chunks.end(), [&](const AttentionPlan::Chunk& chunk) {
        return (chunk.q_end - chunk.q_begin) * group <= narrow_row_tile;
      });
  tile_rows_ = narrow ? narrow_row_tile : wide_row_tile;
  items_.clear();
  for (const AttentionPlan::Chunk& chunk : plan_.chunks) {
    const IndexRange tokens{places_[static_cast<std::size_t>(chunk.kv_begin)],
                            places_[static_cast<std::size_t>(chunk.kv_end - 1)] + 1};
    const std::int32_t end = chunk.q_end * group;
    for (std::int32_t row = chunk.q_begin * group; row < end; row += tile_rows_) {
      items_.push_back(
          {{row, std::min(row + tile_rows_, end)}, tokens, chunk.partial - chunk.q_begin});
    }
  }
  // The short ones then fill the gaps.
  std::stable_sort(items_.begin(), items_.end(), [](const ListedItem& a, const ListedItem& b) {
    return a.tokens.end - a.tokens.begin > b.tokens.end - b.tokens.begin;
  });
}

std::size_t ItemList::bytes() const {
  return sizeof(ItemListHead) + items_.size() * sizeof(ListedItem) +
         (plan_.reduce_begin.size() + plan_.partial_of.size()) * sizeof(std::int32_t);
}

void ItemList::write(std::byte* to) const {
  const ItemListHead head{static_cast<std::int32_t>(items_.size()), plan_.queries};
  const auto append = [&](const void* from, std::size_t bytes) {
    std::memcpy(to, from, bytes);
    to += bytes;
  };
  append(&head, sizeof(head));
  append(items_.data(), items_.size() * sizeof(ListedItem));
  append(plan_.reduce_begin.data(), plan_.reduce_begin.size() * sizeof(std::int32_t));
  append(plan_.partial_of.data(), plan_.partial_of.size() * sizeof(std::int32_t));
}

}  // namespace coppice
