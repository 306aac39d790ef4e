#include "models/prefix_pass.h"

#include <algorithm>
#include <numeric>

namespace coppice {

bool PrefixPass::extend(std::span<const TokenId> tokens, std::int32_t end, const CacheRef& base,
                        KvSlots& slots, std::int32_t first) {
  const std::int32_t most = model_.options().max_rows;
  while (first + slots.size() < end) {
    const std::int32_t own = slots.size(), begin = first + own;
    const std::int32_t rows = std::min(most, end - begin);
    positions_.resize(static_cast<std::size_t>(rows));
    std::iota(positions_.begin(), positions_.end(), begin);
    if (!slots.take(positions_, slots.open_page(first))) return false;
    CutBack computed{slots, own};  // slots without KV must not stay with the text
    const std::span<const KvSlot> former = slots.all().first(static_cast<std::size_t>(own));
    const std::span<const KvSlot> fresh = slots.all().subspan(former.size());
    layout_.begin(of_);
    layout_.add(base, former, rows, first);
    layout_.arrange();
    segments_.clear();
    layout_.list_before(0, segments_);
    for (std::int32_t i = 0; i < rows; ++i) {
      segments_.push_back(
          {fresh.subspan(static_cast<std::size_t>(i), 1), i, rows, false, begin + i});
    }
    ForwardBatch batch;
    batch.tokens = tokens.subspan(static_cast<std::size_t>(begin), static_cast<std::size_t>(rows));
    batch.positions = positions_;
    batch.write_slots = fresh;
    batch.segments = segments_;
    model_.forward(batch, pool_, nullptr);
    computed.length = slots.size();
  }
  return true;
}

}  // namespace coppice
